/*
 * A database that loses acknowledged writes, in a failover to a replica that lagged. There is one row. It goes back to an
 * older copy of itself, or vanishes. Two processes claim the row and settle it. Each remembers the newest stored version of
 * the row that it has seen, and compares it with the row at intervals (the rollback detector).
 *
 * Versions and tokens are numbers here, because the question is which comparison detects the loss. So the number of writes
 * is bounded by WRITES. Every atomic{} is one transaction or one step inside a process.
 *
 * -D switches: WRITES, PERSON, ONLY=n, and mutants.
 */

#ifndef WRITES
#define WRITES 7        /* writes to the row */
#endif
#ifndef PERSON
#define PERSON 1        /* requeues */
#endif

typedef Row {
  bool there;
  byte key;                 /* the idempotency key */
  byte version, token, epoch;
  bool ended;               /* by a success */
  byte write                /* number of the write; no process can read it */
};
Row row;
Row copy;                   /* the replica */
bool leased;
byte writes, tokens, persons;
bool failed_over;

/* The remembered version of each process: the newest stored write that it has seen, by its own INSERT or an outcome. */
Row seen[2];
bool noticed[2];

/* Used only by the promises. */
bool gone[2];               /* the database has lost what the process remembers */
bool done[3];               /* a success of this key was reported as stored */

#ifdef ONLY
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert((n) == ONCE || (holds))
#endif
#define STOPS 1             /* a process that has detected a loss claims and starts nothing until a person accepts the loss */
#define SEES  2             /* a check of the row detects that a success, or a new row, that the process saw stored is lost */
#define QUIET 3             /* no loss is detected when nothing is lost */
#define ONCE  4             /* not promised: an entry whose success was reported as stored does not run again */

inline written() {
  writes++; row.write = writes; tokens++; row.token = tokens
}
inline copy_row(to, from) {
  to.there = from.there; to.key = from.key; to.version = from.version; to.token = from.token; to.epoch = from.epoch;
  to.ended = from.ended; to.write = from.write
}
inline forget_row(r) {
  r.there = false; r.key = 0; r.version = 0; r.token = 0; r.epoch = 0; r.ended = false; r.write = 0
}
inline remember() { copy_row(seen[w], row); gone[w] = false }

/* The present row cannot follow from the row that was seen. */
#define LESS (!row.there || OTHER_ENTRY || BEHIND || NOT_THE_END)
#ifdef NO_KEY
#define OTHER_ENTRY false
#else
#define OTHER_ENTRY (row.key != seen[w].key)                          /* its id was assigned again */
#endif
#define BEHIND (row.version < seen[w].version || row.epoch < seen[w].epoch || row.version == seen[w].version && row.token != seen[w].token)
#ifdef VERSION_ONLY
#define NOT_THE_END false
#elif defined(ENDS_FOR_GOOD)
#define NOT_THE_END (seen[w].ended && row.token != seen[w].token)
#else
#define NOT_THE_END (seen[w].ended && row.token != seen[w].token && row.epoch == seen[w].epoch) /* only a person writes an ended row */
#endif

#ifdef UNCHECKED
#define STOPPED false
#else
#define STOPPED noticed[w]
#endif
#ifdef STARTS_UNCHECKED
#define LATE_STOPPED false
#else
#define LATE_STOPPED noticed[w]
#endif

/* The process must detect the loss of a success or of the whole row, unless a person has written the row since. Writes
   after the failover can hide the loss of any other outcome. */
#define MUST_TELL ((seen[w].ended || !row.there || row.key != seen[w].key) && row.epoch <= seen[w].epoch)

proctype Process(byte w) {
  byte version;
  do
  :: atomic { !row.there && writes < WRITES && (w == 0 || failed_over) -> /* Record, COMMIT */
       row.there = true; if :: row.key = 1 :: failed_over -> row.key = 2 fi; row.version = 0; row.epoch = 0; row.ended = false;
       leased = false; written(); remember() }
  :: atomic { row.there && !row.ended && !leased && !STOPPED && writes < WRITES -> /* Store.Claim */
       PROMISE(STOPS, !noticed[w]);
       row.version++; version = row.version; leased = true; written() };
     if
     :: atomic { LATE_STOPPED -> skip }                       /* claimed while the loss was detected: not started, and the lease ends */
     :: atomic { !LATE_STOPPED ->
          PROMISE(STOPS, !noticed[w]);
          PROMISE(ONCE, !done[row.key]) };
        if
        :: atomic { writes < WRITES && row.there && !row.ended && row.version == version -> /* Store.Settle */
             row.version++; row.ended = true; leased = false; written(); remember(); done[row.key] = true }
        :: atomic { writes < WRITES && row.there && !row.ended && row.version == version ->
             row.version++; leased = false; written(); remember() } /* to be retried */
        :: atomic { true -> skip }                            /* its lease ends, or its outcome is dropped */
        fi
     fi;
     version = 0
  od
}
/* In the same process: a check with each round of the reconciler, and after reconnecting. */
proctype Look(byte w) {
  do
  :: atomic { seen[w].there && !noticed[w] ->                 /* the check */
       if
       :: LESS -> noticed[w] = true
       :: else
       fi;
       PROMISE(QUIET, !noticed[w] || gone[w]);
       PROMISE(SEES, noticed[w] || !gone[w] || !MUST_TELL) }
  :: atomic { noticed[w] -> noticed[w] = false; gone[w] = false; forget_row(seen[w]) } /* a person accepts the loss */
  od
}

proctype Replica() {
  atomic { copy_row(copy, row) };
  atomic {
    failed_over = true;
    gone[0] = seen[0].there && seen[0].write > copy.write;
    gone[1] = seen[1].there && seen[1].write > copy.write;
    copy_row(row, copy); leased = false
  }
}

proctype Clock() {
  do :: atomic { leased -> leased = false } od
}

proctype Person() {
  do
  :: atomic { persons < PERSON && row.there && row.ended && writes < WRITES -> persons++;
       row.epoch++; row.version++; row.ended = false; done[row.key] = false; written() }
  :: break
  od
}

init { atomic { run Process(0); run Process(1); run Look(0); run Look(1); run Replica(); run Clock(); run Person() } }
