/*
 * A queue that loses a type, and its rebuilding: the place of one entry, while processes that hold it settle and tell the
 * queue, and others announce what they have read before. process_log.pml has an entry that is in the queue or not; here is
 * what it cannot show: one that is there for too late.
 *
 * Every atomic{} is one transaction, one script of the queue, or one step inside a process. Of all moments two are told
 * apart: when the row is due, and the end of a lease, which is later. Nothing here dies: what a dead process leaves comes
 * at the end of its lease, and that is when it belongs.
 *
 * -D switches: LOSSES, ANOTHER, ONLY=n, and mutants.
 */

#ifndef LOSSES
#define LOSSES 1        /* times the queue loses the type */
#endif

mtype = { nowhere, due, later };

/* The row. */
bool open = true;
bool leased;
byte claimer;               /* 1 + the process whose claim is the row's last write; 0: there was an outcome since */

/* The queue. */
mtype place = due;
byte token;                 /* 1 + the process whose lease the place is; 0: nobody's */
bool whole = true;
bool mark[2];               /* of who rebuilds; lost with the entries */
byte losses;

bool under_way[2];          /* the process has claimed, in the queue or the database, and the queue is not told yet */

#ifdef ONLY
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
/* Of an entry that waits, whose type is whole, and of which nobody has still to tell: */
#define THERE   1           /* it is in the queue */
#define ON_TIME 2           /* at its own moment */
active proctype Judge() {
  do
  :: atomic { whole && open && !leased && !under_way[0] && !under_way[1] && place != due ->
       PROMISE(THERE, place != nowhere);
       PROMISE(ON_TIME, place == nowhere) }
  od
}

/* ==== scripts ==== */

inline put(where) { place = where; token = 0 }

#ifdef LEAVES_LOST          /* one that is not here has ended, whether or not the type is lost */
#define FORGOTTEN false
#else
#define FORGOTTEN (place == nowhere && !whole)
#endif
#ifdef NOT_PULLED_IN        /* what carries another's token is left alone */
#define PULLED_IN(wait) false
#else
#define PULLED_IN(wait) (place == later && wait == due)
#endif

/* settle.lua. wait: until when; nowhere: remove. */
inline settle(wait) {
  if
  :: place != nowhere && token == w + 1 -> put(wait)
  :: !(place != nowhere && token == w + 1) && wait != nowhere && (FORGOTTEN || PULLED_IN(wait)) -> put(wait)
  :: else
  fi
}

/* enqueue.lua: an entry that is here keeps its place; not when its moment has been moved (announcer.move). */
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
  :: atomic { !whole && open && !leased -> under_way[w] = true }; /* Store.Due: the database is asked as well */
     goto claim
  fi;

claim:                                                        /* Store.Claim */
  atomic {
    if
    :: open && !leased -> leased = true; claimer = w + 1
    :: open && leased -> wait = later; goto tell              /* returnToQueue: until the end of another's lease, as it was now */
    :: !open -> goto tell
    fi };

  atomic {                                                    /* Store.Settle */
    if
    :: claimer == w + 1 && open -> claimer = 0; leased = false; wait = due /* to be tried again */
    :: claimer == w + 1 && open -> claimer = 0; leased = false; open = false
    :: else -> from_queue = false; goto over                  /* Observer.OutcomeDropped */
    fi };

tell:                                                         /* tellQueue, returnToQueue */
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
  :: atomic { !whole -> mark[r] = true };                     /* rebuild.lua: the period of another may be over */
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

/* Leases end. That of the queue outlasts what is done under it. */
proctype Clock() {
  do
  :: atomic { place == later && (token == 0 || !under_way[token - 1]) -> put(due) }
  :: atomic { leased -> leased = false }
  od
}

init { atomic {
  run Worker(0); run Worker(1); run Rebuilder(0); run Loss(); run Clock();
#ifdef ANOTHER              /* takes over a rebuilding whose period is over while its process is at it */
  run Rebuilder(1)
#endif
} }
