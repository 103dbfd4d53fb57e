/*
 * A queue that loses a type, and its rebuild. The model follows the queue's member of one entry. Processes that hold the entry
 * settle it and update the queue. Other processes enqueue it from what they read before. In process_log.pml an entry is either in the
 * queue or not. This model adds a member whose time is too late.
 *
 * Every atomic{} is one transaction, one script of the queue, or one step inside a process. There are two times: when the
 * row is due, and the end of a lease, which is later. No process dies, because the entry of a dead process becomes due at
 * the end of its lease anyway.
 *
 * -D switches: LOSSES, ANOTHER, ONLY=n, and mutants.
 */

#ifndef LOSSES
#define LOSSES 1        /* how often the queue loses the type */
#endif

mtype = { nowhere, due, later };

/* The row. */
bool open = true;
bool leased;
byte claimer;               /* 1 + the process whose claim is the row's last write; 0: an outcome was written since */

/* The queue. */
mtype place = due;
byte token;                 /* 1 + the process that has the queue's lease; 0: no lease */
bool whole = true;
bool mark[2];               /* mark of the rebuilding process; lost with the entries */
byte losses;

bool under_way[2];          /* the process has claimed, in the queue or the database, and has not updated the queue yet */

#ifdef ONLY
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
/* For an entry that waits, whose type is complete in the queue, and that no process is about to update: */
#define THERE   1           /* the entry is in the queue */
#define ON_TIME 2           /* with its own due time */
active proctype Judge() {
  do
  :: atomic { whole && open && !leased && !under_way[0] && !under_way[1] && place != due ->
       PROMISE(THERE, place != nowhere);
       PROMISE(ON_TIME, place == nowhere) }
  od
}

/* ==== scripts ==== */

inline put(where) { place = where; token = 0 }

#ifdef LEAVES_LOST          /* an entry that is not in the queue counts as ended, even when the type is lost */
#define FORGOTTEN false
#else
#define FORGOTTEN (place == nowhere && !whole)
#endif
#ifdef NOT_PULLED_IN        /* a member with another token is left alone */
#define PULLED_IN(wait) false
#else
#define PULLED_IN(wait) (place == later && wait == due)
#endif

/* settle.lua. wait: the new due time; nowhere: remove the member. */
inline settle(wait) {
  if
  :: place != nowhere && token == w + 1 -> put(wait)
  :: !(place != nowhere && token == w + 1) && wait != nowhere && (FORGOTTEN || PULLED_IN(wait)) -> put(wait)
  :: else
  fi
}

/* enqueue.lua: a member keeps its due time, unless the due time was moved. */
inline announce(wait, moved) {
  if
  :: place == nowhere || moved && place == later -> put(wait)
  :: else
  fi
}

/* ==== processes ==== */

proctype Worker(byte w) {
  bool from_queue;
  mtype wait = nowhere;
idle:
  if
  :: atomic { place == due ->                                 /* claim.lua */
       place = later; token = w + 1; from_queue = true; under_way[w] = true };
     goto claim
  :: atomic { !whole && open && !leased -> under_way[w] = true }; /* Store.Due: the process also asks the database */
     goto claim
  fi;

claim:                                                        /* Store.Claim */
  atomic {
    if
    :: open && !leased -> leased = true; claimer = w + 1
    :: open && leased -> wait = later; goto tell              /* settleUnclaimed: until the end of the other process's lease, as just read */
    :: !open -> goto tell
    fi };

  atomic {                                                    /* Store.Settle */
    if
    :: claimer == w + 1 && open -> claimer = 0; leased = false; wait = due /* to be retried */
    :: claimer == w + 1 && open -> claimer = 0; leased = false; open = false
    :: else -> from_queue = false; goto over                  /* Observer.OutcomeDropped */
    fi };

tell:                                                         /* notifyQueue, settleUnclaimed */
  atomic {
    if
    :: from_queue -> settle(wait)
    :: !from_queue && wait != nowhere -> announce(wait, wait == due)
    :: else
    fi };
over:
  atomic { from_queue = false; wait = nowhere; under_way[w] = false; goto idle }
}

proctype Rebuilder(byte r) {
  mtype read = nowhere;
  do
  :: atomic { !whole -> mark[r] = true };                     /* rebuild.lua: the period of another rebuild may be over */
     atomic { if :: open -> read = (leased -> later : due) :: else fi }; /* Store.Scan */
     atomic { if :: read != nowhere -> announce(read, false) :: else fi; read = nowhere };
     atomic {                                                 /* rebuilt.lua */
       if
#ifdef MARK_IGNORED
       :: true -> whole = true; mark[0] = false; mark[1] = false
#else
       :: mark[r] -> whole = true; mark[0] = false; mark[1] = false
       :: !mark[r]
#endif
       fi }
  od
}

proctype Loss() {
  do
  :: atomic { losses < LOSSES -> losses++; put(nowhere); whole = false; mark[0] = false; mark[1] = false }
  :: break
  od
}

/* Leases end. A lease of the queue lasts longer than the work under it. */
proctype Clock() {
  do
  :: atomic { place == later && (token == 0 || !under_way[token - 1]) -> put(due) }
  :: atomic { leased -> leased = false }
  od
}

init { atomic {
  run Worker(0); run Worker(1); run Rebuilder(0); run Loss(); run Clock();
#ifdef ANOTHER              /* takes over a rebuild whose period has ended while its process is still rebuilding */
  run Rebuilder(1)
#endif
} }
