/*
 * Entries of one ordering key. One of them runs at a time, in the order of their positions. They commit in any order. The
 * queue offers one entry to each of two workers. A worker skips an entry that another one blocks. Otherwise it claims the
 * entry and looks whether the entry is first. If not, it puts the entry back as blocked, until another process makes it
 * due. process_log.pml models a single entry.
 *
 * Every atomic{} is one statement, or one step inside a process. A worker may die between any two. Here a lease ends only
 * with its process. Instead of a version, the model stores the result of comparing it: see written.
 *
 * -D switches: the numbers below, PASS, STRAYS, TAKEN_OUT, ONLY=n, ENDS, and mutants.
 */

#ifndef CRASH
#define CRASH 0         /* deaths of workers */
#endif
#ifndef RETRIES
#define RETRIES 1       /* failures after which the entry waits for its retry */
#endif
#ifndef DEATHS
#define DEATHS 1        /* permanent failures */
#endif
#ifndef REQUEUES
#define REQUEUES 0      /* requeues of dead entries by a person */
#endif
#define ENTRIES 3
#define PERSON 2        /* number of Person, who calls Advance as a worker does */
#define NOBODY 255

mtype = { absent, stands, dead, ended };
mtype = { now, later, turn };               /* now: due; later: at the requested time; turn: when no entry blocks it, or after its waiting time */
mtype = { unleased, leased, lapsed };
mtype = { no, next, this };                 /* parked: the note says blocked: no, for the next version of the row, or for its present version */
mtype at[ENTRIES] = absent;
mtype due[ENTRIES] = now;
mtype lease[ENTRIES] = unleased;
bool orphaned[ENTRIES];                     /* the process with the lease is dead */
bit epoch[ENTRIES];
bool noted[ENTRIES];
bit noted_epoch[ENTRIES];
mtype parked[ENTRIES] = no;

byte offered[ENTRIES];                      /* state in the queue: OUT, IN, or leased by a worker */
#define OUT 0
#define IN 1
#define BY(w) (2 + w)

bit sees[ENTRIES];                          /* worker 0 has seen the entry: see SEEN. Worker 1 reads the whole key each time */
bit sees_epoch[ENTRIES];

byte front[3] = NOBODY;                     /* the first entry that Advance found, if it is blocked or due */
bool changed[3];                            /* the row of that entry was written since */
byte gone[3];                               /* notes of ended entries that Advance found in front, one bit each */
byte gone_epoch[3];
bool busy[3];
byte crashes, retries, deaths, requeues, slept;

/* Used only by the promises. */
bool runs[ENTRIES];
bool knew[ENTRIES];                         /* the entry has had a position since it was recorded */
byte ahead[ENTRIES];                        /* the entries in front when this one was claimed, one bit each */

#ifdef ENDS
#define PROMISE(n, holds) skip
#elif defined(ONLY)
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
#define ONE_RUNS 1      /* at most one entry of a key runs */
#define IN_ORDER 2      /* no entry starts before one that has been in front since before its claim */
#define AS_ASKED 3      /* no entry that waits for its requested time is made due */
#define WOKEN    4      /* entries of a key wait for the end of their waiting time only after the death of a worker, and once for each death */

#ifdef PASS             /* PassDead: a dead entry does not block the entries behind it */
#define COUNTS(i) (at[i] == stands)
#else
#define COUNTS(i) (at[i] == stands || at[i] == dead)
#endif
#define IN_LINE(i) (noted[i] && COUNTS(i))
#define CLAIMABLE(i) (at[i] == stands && due[i] == now && lease[i] != leased)
#define FIRST (IN_LINE(0) -> 0 : (IN_LINE(1) -> 1 : (IN_LINE(2) -> 2 : NOBODY)))
#define HELD(k, i) (k != i && IN_LINE(k) && lease[k] == leased)
#define TAKEN(i) (HELD(0, i) || HELD(1, i) || HELD(2, i))

/* ---- the rules ---- */

#ifdef EPOCH_UNASKED    /* a note from before a requeue counts too, although a process that has read it may delete it */
#define KNOWN(i) true
#else
#define KNOWN(i) (noted[i] && noted_epoch[i] == epoch[i])
#endif
#ifdef BESIDE_A_LEASE
#define FREE(i) true
#else
#define FREE(i) (!TAKEN(i))
#endif
/* No entry behind this one can start: the process has read all entries of the key, including this one, and none was claimed. */
#ifdef SEEN_IN_ANY_EPOCH
#define SEEN(w, i) (w == 0 && sees[i])
#else
#define SEEN(w, i) (w == 0 && sees[i] && sees_epoch[i] == epoch[i])
#endif
#define CLAIMED(k, i) (k != i && IN_LINE(k) && lease[k] != unleased)
#ifdef SEEN_BESIDE_A_LEASE
#define QUIET_KEY(i) true
#else
#define QUIET_KEY(i) (!CLAIMED(0, i) && !CLAIMED(1, i) && !CLAIMED(2, i))
#endif
#ifdef BLOCKED_IN_ANY_EPOCH /* also by a note from before a requeue, which may be deleted: then no process makes the entry due */
#define BLOCKED(i) (noted[i] && FIRST != NOBODY && FIRST != i)
#else
#define BLOCKED(i) (KNOWN(i) && FIRST != NOBODY && FIRST != i)
#endif
#ifdef UNNOTED_STARTS   /* without an entry in front, whether or not other processes can see its position */
#define ITS_TURN(w, i) ((FIRST == i && KNOWN(i) || FIRST == NOBODY) && (SEEN(w, i) || FREE(i)))
#elif defined(OUT_OF_ORDER)
#define ITS_TURN(w, i) ((SEEN(w, i) || FREE(i)) && KNOWN(i))
#else
#define ITS_TURN(w, i) (FIRST == i && (SEEN(w, i) || FREE(i)) && KNOWN(i))
#endif
#ifdef WAKES_ANYBODY    /* whether blocked or not */
#define WAITS(i) (due[i] != now && lease[i] == unleased && at[i] == stands)
#else
#define WAITS(i) (parked[i] == this && lease[i] == unleased && at[i] == stands)
#endif
#define READY(i) (at[i] == stands && due[i] == now && lease[i] != leased)
#ifdef WAKES_BLINDLY    /* even when the row was written since it was read */
#define AS_READ(w) true
#else
#define AS_READ(w) (!changed[w])
#endif
#ifdef FORGETS_BLINDLY  /* also a note that was written again */
#define NOTE_AS_READ(w, i) true
#else
#define NOTE_AS_READ(w, i) (noted_epoch[i] == (gone_epoch[w] >> i & 1))
#endif

/* A write of the row raises its version, so a process that has read the row finds another version. */
inline written(i) {
  parked[i] = (parked[i] == next -> this : no);
  changed[0] = changed[0] || front[0] == i;
  changed[1] = changed[1] || front[1] == i;
  changed[2] = changed[2] || front[2] == i
}

#define BEFORE(k, i) (k < i && knew[k] && COUNTS(k) -> 1 << k : 0)
inline claim(i) {
  lease[i] = leased; orphaned[i] = false; written(i);
  ahead[i] = BEFORE(0, i) | BEFORE(1, i) | BEFORE(2, i)
}
#define OVERTAKEN(k, i) ((ahead[i] >> k & 1) && knew[k] && COUNTS(k))
inline start(i) {
  PROMISE(ONE_RUNS, !runs[0] && !runs[1] && !runs[2]);
  PROMISE(IN_ORDER, !OVERTAKEN(0, i) && !OVERTAKEN(1, i) && !OVERTAKEN(2, i));
  runs[i] = true
}
inline settle(i, to, when) {
  at[i] = to; due[i] = when; lease[i] = unleased; runs[i] = false; ahead[i] = 0; written(i);
  offered[i] = (to == stands -> IN : OUT);
#ifndef SEEN_IN_ANY_EPOCH
  if :: to != stands && to != dead -> sees[i] = 0; sees_epoch[i] = 0 :: else fi   /* no longer needed; this saves states */
#endif
}
inline see_one(k) { sees[k] = IN_LINE(k); sees_epoch[k] = (IN_LINE(k) -> noted_epoch[k] : 0) }

/* The check after the claim. For a seen entry it reads only which entry is first. Otherwise it reads the whole key. */
inline look(w, i) {
  first = ITS_TURN(w, i);
  if
  :: w == 0 && !SEEN(w, i) && QUIET_KEY(i) -> see_one(0); see_one(1); see_one(2)
  :: else
  fi
}

/* Store.Advance, in three steps: find the first entry if it waits, make it due, and delete the notes of ended entries. */
#define LEFT(k) (noted[k] && !COUNTS(k) && (FIRST == NOBODY || k < FIRST))
inline read_front(w) {
  gone[w] = (LEFT(0) -> 1 : 0) | (LEFT(1) -> 2 : 0) | (LEFT(2) -> 4 : 0);
  gone_epoch[w] = gone[w] & (noted_epoch[0] | noted_epoch[1] << 1 | noted_epoch[2] << 2);
  front[w] = FIRST; changed[w] = false;
  if
  :: front[w] != NOBODY ->
     if :: WAITS(front[w]) && !TAKEN(front[w]) || READY(front[w]) :: else -> front[w] = NOBODY fi
  :: else
  fi
}
inline wake(w) {
  if
  :: front[w] != NOBODY && READY(front[w]) -> offered[front[w]] = IN
  :: front[w] != NOBODY && !READY(front[w]) && AS_READ(w) && lease[front[w]] == unleased && at[front[w]] == stands ->
     PROMISE(AS_ASKED, due[front[w]] != later);
     due[front[w]] = now; written(front[w]); offered[front[w]] = IN
  :: else
  fi;
  front[w] = NOBODY; changed[w] = false
}
inline forget_note(w, i) {
  if
  :: (gone[w] >> i & 1) && noted[i] && NOTE_AS_READ(w, i) -> noted[i] = false; noted_epoch[i] = 0; parked[i] = no
  :: else
  fi
}
inline forget(w) {
  forget_note(w, 0); forget_note(w, 1); forget_note(w, 2);
  gone[w] = 0; gone_epoch[w] = 0
}

#define DIES (crashes < CRASH)
#define NEXT_SEEN(w, i) (w == 0 && i < 1 && sees[1] -> 1 : (w == 0 && i < 2 && sees[2] -> 2 : NOBODY))

proctype Worker(byte w) {
  byte i, next_one;
  bool first;
idle:
  atomic { busy[w] = false; i = 0; first = false; front[w] = NOBODY; changed[w] = false; gone[w] = 0; gone_epoch[w] = 0 };
end:
  if                                                           /* Queue.Claim */
  :: atomic { CLAIMABLE(0) && offered[0] == IN -> busy[w] = true; i = 0; offered[0] = BY(w) }
  :: atomic { CLAIMABLE(1) && offered[1] == IN -> busy[w] = true; i = 1; offered[1] = BY(w) }
  :: atomic { CLAIMABLE(2) && offered[2] == IN -> busy[w] = true; i = 2; offered[2] = BY(w) }
  fi;
  if                                                           /* Store.Blocked */
  :: atomic { BLOCKED(i) };
#ifdef REMOVED_BLINDLY
     atomic { offered[i] = OUT };
#else
     atomic { if :: offered[i] == BY(w) -> offered[i] = OUT :: else fi };  /* Queue.Settle */
#endif
     goto idle
  :: atomic { !BLOCKED(i) -> skip }
  fi;
#ifdef LOOKS_FIRST
  atomic { look(w, i) };
#endif
  atomic {                                                     /* Store.Claim */
    if
    :: CLAIMABLE(i) -> claim(i); offered[i] = (offered[i] == BY(w) -> OUT : offered[i])
    :: else -> offered[i] = (offered[i] == BY(w) -> (at[i] == stands -> IN : OUT) : offered[i]); goto idle   /* another worker was faster */
    fi
  };
claimed:
  if
#ifdef TAKEN_OUT
  :: atomic { i == 0 -> settle(i, dead, now) }; goto left      /* dead-lettered by crashes: no handler runs */
#endif
#ifndef LOOKS_FIRST
  :: atomic {
#ifdef TAKEN_OUT
       i != 0 ->
#endif
       look(w, i) }                                            /* the check after the claim */
#else
  :: skip
#endif
  :: atomic { DIES -> goto died }
  fi;
  if
  :: atomic { first -> start(i) }
  :: atomic { !first -> skip }; goto park
  :: atomic { DIES -> goto died }
  fi;
  if                                                           /* the handler, and Store.Settle */
  :: atomic { settle(i, ended, now) }; goto left
  /* handover: the next entry is claimed while the outcome is stored. */
  :: atomic { NEXT_SEEN(w, i) != NOBODY && CLAIMABLE(NEXT_SEEN(w, i)) -> next_one = NEXT_SEEN(w, i); claim(next_one) };
#ifdef STARTS_AHEAD     /* it starts before the outcome is stored */
     atomic { start(next_one) };
#endif
     if
     :: atomic { settle(i, ended, now); i = next_one; next_one = 0; first = false }; goto claimed
     :: atomic { DIES -> orphaned[next_one] = true; runs[next_one] = false; next_one = 0 }; goto died
     fi
  :: atomic { deaths < DEATHS -> deaths++; settle(i, dead, now) };
#ifdef PASS
     goto left
#else
     goto idle
#endif
  :: atomic { retries < RETRIES -> retries++; settle(i, stands, later) };
#ifdef TELLS_NO_RETRY   /* an entry that committed late may be blocked in front of it */
     goto idle
#else
     goto advance
#endif
  :: atomic { DIES -> goto died }
  fi;
park:
  if                                                           /* the entry is put back as blocked */
  :: atomic { noted[i] = true; noted_epoch[i] = epoch[i]; parked[i] = next }
  :: atomic { DIES -> goto died }
  fi;
  if
  :: atomic { settle(i, stands, turn) }
  :: atomic { DIES -> goto died }
  fi;
#ifdef NO_SECOND_LOOK
  goto idle;
#endif
  goto advance;
left:
#ifdef TELLS_NOBODY
  goto idle;
#endif
#ifdef TAKEN_OUT_UNTOLD
  if :: i == 0 -> goto idle :: else fi;
#endif
  /* The next entry is claimed at once if it is seen. Otherwise Advance looks for it. */
  if
  :: atomic { NEXT_SEEN(w, i) != NOBODY -> i = NEXT_SEEN(w, i); first = false }
  :: atomic { NEXT_SEEN(w, i) == NOBODY -> skip }; goto advance
  :: atomic { DIES -> goto quit }
  fi;
  if
  :: atomic { CLAIMABLE(i) -> claim(i) }; goto claimed
  :: atomic { !CLAIMABLE(i) -> skip }
  :: atomic { DIES -> goto quit }
  fi;
advance:
  if :: atomic { read_front(w) } :: atomic { DIES -> goto quit } fi;
  if :: atomic { wake(w) } :: atomic { DIES -> goto quit } fi;
  if :: atomic { forget(w) } :: atomic { DIES -> goto quit } fi;
  goto idle;
died:
  atomic { orphaned[i] = true; runs[i] = false };
quit:
  atomic {
    crashes++;
    if :: w == 0 -> sees[0] = 0; sees[1] = 0; sees[2] = 0; sees_epoch[0] = 0; sees_epoch[1] = 0; sees_epoch[2] = 0 :: else fi
  };
  goto idle
}

/* Record and its COMMIT, in any order, because ids are assigned before the COMMIT. */
inline record(i) {
  at[i] = stands; offered[i] = IN;
  if
  :: noted[i] = true; knew[i] = true                           /* Store.Join, in the same transaction */
#ifdef STRAYS
  :: skip                                                      /* the recording process does not know the type as serial */
#endif
  fi;
  if :: due[i] = later :: skip fi
}
proctype Recorders() {
  do
  :: atomic { at[0] == absent -> record(0) }
  :: atomic { at[1] == absent -> record(1) }
  :: atomic { at[2] == absent -> record(2) }
  :: atomic { at[0] != absent && at[1] != absent && at[2] != absent -> break }
  od
}

/* Delays and schedules end at any time, and so do the leases of dead workers. The waiting time of a blocked entry is longer
   than everything in progress, and is the same for all entries of a key. */
#define LATER(i) (at[i] == stands && due[i] == later)
#define ORPHAN(i) (lease[i] == leased && orphaned[i])
#define WAITING(i) (at[i] == stands && due[i] == turn)
#define HIDDEN(i) (CLAIMABLE(i) && offered[i] == OUT)         /* the queue does not offer it, but a sweep finds it if no entry blocks it */
#ifdef PASS
#define GOES_ON(i) (CLAIMABLE(i) && offered[i] != OUT || LATER(i) || ORPHAN(i))
#else
#define GOES_ON(i) (CLAIMABLE(i) && offered[i] != OUT || LATER(i) || ORPHAN(i) || at[i] == dead)
#endif
#define QUIET (at[0] != absent && at[1] != absent && at[2] != absent && !busy[0] && !busy[1] && !busy[2] && !GOES_ON(0) && !GOES_ON(1) && !GOES_ON(2))
inline lose_patience(i) { if :: WAITING(i) -> due[i] = now :: HIDDEN(i) && !BLOCKED(i) -> offered[i] = IN :: else fi }
proctype Clock() {
end:
  do
  :: atomic { LATER(0) -> due[0] = now }
  :: atomic { LATER(1) -> due[1] = now }
  :: atomic { LATER(2) -> due[2] = now }
  :: atomic { ORPHAN(0) -> lease[0] = lapsed; offered[0] = IN }
  :: atomic { ORPHAN(1) -> lease[1] = lapsed; offered[1] = IN }
  :: atomic { ORPHAN(2) -> lease[2] = lapsed; offered[2] = IN }
#ifdef IMPATIENT        /* a waiting time may end while others of the key run */
  :: atomic { WAITING(0) -> due[0] = now }
  :: atomic { WAITING(1) -> due[1] = now }
  :: atomic { WAITING(2) -> due[2] = now }
#endif
  :: atomic { QUIET && (WAITING(0) || WAITING(1) || WAITING(2) || HIDDEN(0) || HIDDEN(1) || HIDDEN(2)) ->
       slept++; PROMISE(WOKEN, slept <= crashes);
       lose_patience(0); lose_patience(1); lose_patience(2) }
  od
}

inline requeue(i) {
  requeues++; epoch[i] = 1; knew[i] = knew[i] && COUNTS(i); settle(i, stands, now)
}

/* A service or a person settles a dead entry, or requeues it at most REQUEUES times. */
proctype Person() {
  byte i;
end:
  do
#ifndef PASS
  :: atomic { at[0] == dead -> busy[PERSON] = true; i = 0 }; goto settles
  :: atomic { at[1] == dead -> busy[PERSON] = true; i = 1 }; goto settles
  :: atomic { at[2] == dead -> busy[PERSON] = true; i = 2 }; goto settles
#endif
  :: atomic { requeues < REQUEUES && at[0] == dead -> requeue(0) }
  :: atomic { requeues < REQUEUES && at[1] == dead -> requeue(1) }
  :: atomic { requeues < REQUEUES && at[2] == dead -> requeue(2) }
  od;
#ifndef PASS
settles:
  atomic {
    if
    :: at[i] == dead -> settle(i, ended, now)
    :: else
    fi
  };
  atomic { read_front(PERSON) };
  atomic { wake(PERSON) };
  atomic { forget(PERSON); busy[PERSON] = false; i = 0 };
  goto end
#endif
}

init { atomic { run Recorders(); run Clock(); run Worker(0); run Worker(1); run Person() } }

#ifdef PASS
#define OVER(i) (at[i] == ended || at[i] == dead)
#else
#define OVER(i) (at[i] == ended)
#endif
#ifdef ENDS     /* no entry of the key waits forever */
ltl ends { <> [] (OVER(0) && OVER(1) && OVER(2)) }
#endif
