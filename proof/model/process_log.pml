/*
 * One entry: a row of the process log, two processes that claim, run and settle it, a queue that may lose it, and people
 * who act on it. README.md in this directory says what is left out, and which function each step stands for.
 *
 * Every atomic{} is one SQL transaction, one script of the queue, or one step inside a process.
 *
 * No counter grows without end, so the search covers all behaviours, not only those of a bounded length:
 *   version  is compared only with the version that an attempt carries, and never returns to an old value. So the model
 *            stores for each process whether the comparison would hold (fence).
 *   token    is compared only with tokens that a process still remembers. So the model stores which process created the
 *            token, and for which kind of write.
 *
 * -D switches: the faults and HOLDS (see README.md), ONLY=n (check promise n alone), ENDS, RESTS and STAYS (temporal
 * promises), and the mutants. A mutant's switch stands where it breaks the protocol.
 */

#if defined(FAILURE_UNFENCED) || defined(COMPENSATION_UNFENCED) || defined(QUEUE_TRUSTED) || defined(EPOCH_IGNORED)
#define OWN_COUNTS
#endif

#ifndef ATTEMPTS
#define ATTEMPTS 2      /* MaxAttempts */
#endif
#ifndef UNDOS
#define UNDOS 2         /* MaxCompensateAttempts */
#endif
#ifndef BUDGET
#define BUDGET 2        /* crashBudget: leases in a row that may end without an outcome; 3 in the library */
#endif
#ifndef SPARED
#define SPARED 1        /* outcomes that cost no attempt: Snooze, Unavailable, interrupted, transient */
#endif
#ifndef CRASH
#define CRASH 0         /* deaths of processes outside handlers; > 0 also allows any number inside handlers */
#endif
#ifndef LOSS
#define LOSS 0          /* how often the queue loses everything; > 0 also allows any enqueue to get lost */
#endif
#ifndef SPUR
#define SPUR 0          /* how often the queue goes back to an older copy of itself, in which the entry is due */
#endif
#ifndef UNKNOWN
#define UNKNOWN 0       /* COMMITs of the library whose answer is lost */
#endif
#ifndef PERSON
#define PERSON 0        /* actions of services and people */
#endif
#ifndef GIVEBACK
#define GIVEBACK 0      /* claims released unstarted, because Run is ending */
#endif
#ifndef STUCK
#define STUCK 0         /* handlers that run on after their timeout, and may never return */
#endif
#if (STUCK > 0 || defined(ONE_PROCESS)) && !defined(HOLDS)
#error "STUCK and ONE_PROCESS ask what a process holds: HOLDS"
#endif
#if defined(ONE_PROCESS) && CRASH > 0 && !defined(THREE)
#error "a process of two workers would have to die by both"
#endif
#ifdef THREE            /* workers 0 and 2 are one process; worker 1 is another, and only it may die */
#define ONE_PROCESS
#define WORKERS 3
#define THIRD(what) what
#else
#define WORKERS 2
#define THIRD(what)
#endif

/* ---- the row ---- */

mtype = { none, pending, retrying, compensating, succeeded, dead, compensated, cancelled, by_hand };

mtype state = none;         /* none: not committed */
bool due = true;            /* next_at <= now */
bool leased;                /* lease_until > now */
byte failures, undos;       /* process_count, compensate_count */
byte deliveries;            /* delivery_count; numbers above the budget are all the same */
byte epoch;
bool fence[WORKERS];        /* the row's version is the version that this process's attempt carries */

byte token;                 /* the last write of the row */
#define OTHERS    0         /* a token that no process will compare any more */
#define INSERTED      1
#define CLAIM(w)  (2 + (w))
#define SETTLE(w) (2 + WORKERS + (w))
#define COMMIT(w) (2 + 2 * WORKERS + (w)) /* the COMMIT of a transactional handler */

#define TERMINAL (state == succeeded || state == dead || state == compensated || state == cancelled || state == by_hand)
#define OPEN     (state == pending || state == retrying || state == compensating)

/* ---- the queue: one member, due or leased. queue_lease is 1 + the process that has the lease; 0: no process remembers the lease. ---- */

bool in_queue, ripe;
byte queue_lease;

/* ---- the processes ---- */

mtype = { nothing, verify, by_id };
mtype fresh = nothing;      /* what process 0, which recorded the entry, does with it right after the commit */
bool running[WORKERS];      /* a handler runs */

/* HOLDS models what a process holds: a running attempt, or an outcome that is not stored yet. Without HOLDS the workers are
   two processes that know nothing of each other, and an entry is dead-lettered as soon as its crash budget is used up.
   With ONE_PROCESS the workers are two goroutines of one process. */
#if defined(THREE)
#define BESIDE(what) (w != 1 && what[2 - w])
#elif defined(ONE_PROCESS)
#define BESIDE(what) what[1 - w]    /* another goroutine of this process */
#else
#define BESIDE(what) false
#endif
#ifdef HOLDS
bool holds[WORKERS];        /* from the start until the outcome is answered; ends with the epoch */
bool stuck[WORKERS];        /* a handler runs on after its timeout, and its lease is no longer renewed */
bool waits[WORKERS];        /* a plain handler has reported a success, which is not stored yet */
bool waited[WORKERS];       /* it reported the success before the further lease began */
byte stucks;
#endif

byte crashes, losses, spurs, unknowns, persons, givebacks, spared, stalls;

/* ---- used only by the promises ---- */

byte gen;                   /* number of actions that started a new epoch */
#define GENS (PERSON + 1)
byte effects[GENS], undone[GENS]; /* committed by transactional handlers, and by transactional compensations */
bool undoing[GENS];         /* a compensation was started */
byte real_failures, real_undo_failures; /* failures recorded in this epoch, each returned by a handler */
byte lost_leases;           /* leases in a row that ended without an outcome */
bool open_lease;            /* the last delivery has no outcome yet */
bool expired[WORKERS];      /* the attempt's lease has ended at some time */
bool changed[WORKERS];      /* a service or a person has changed the entry during the attempt */
bool told, committed, absent; /* the producer's transaction: told: it has ended; committed: with the entry; absent: without the entry */
byte last_writer;           /* 1 + the process whose outcome is the row's last write */
#ifdef HOLDS
bool at_it[WORKERS];        /* an attempt of this epoch has started, and its outcome is neither stored nor dropped */
bool late[WORKERS];         /* it started although the row had been written since it was read back */
bool reported[WORKERS];     /* its outcome is known, and came before any other end of the entry */
#endif

#if defined(ENDS) || defined(RESTS) || defined(STAYS)
#define PROMISE(n, holds) skip
#define NOTE(what) skip             /* the variables of the promises are not needed either */
#elif defined(ONLY)
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#define NOTE(what) what
#else
#define PROMISE(n, holds) assert(holds)
#define NOTE(what) what
#endif
#define EFFECT_ONCE   1
#define NO_PHANTOM    2
#define TERMINAL_STAY 3
#define UNDO_OR_DONE  4
#define NOTHING_LOST  5
#define NEVER_EARLY   6
#define EXHAUSTED     7
#define ONE_EPOCH     8
#define TRUE_ANSWERS  9
#define HELD_FIRST    10

/* ==== writes to the row ==== */

/* Once the budget is used up, one further lease is claimed and nothing runs under it. During this lease, a process whose
   success waits for the database can still store it. */
#if defined(HOLDS) && !defined(NO_FURTHER_LEASE) && !defined(FURTHER_BY_CLOCK)
#define FURTHER 1
#else
#define FURTHER 0
#endif
#ifdef FURTHER_BY_CLOCK     /* the time since the end of the last lease counts instead */
bool a_lease_ago;
#define LONG_OVER (deliveries <= BUDGET - 1 || a_lease_ago)
#else
#define LONG_OVER true
#endif

/* Every write of the library except a renewal: version = version + 1. */
inline moved(who) {
  fence[0] = false; fence[1] = false; THIRD(fence[2] = false;)
  token = who; NOTE(last_writer = 0)
}

/* A claim, or an INSERT with a lease. */
inline lease_to(who) {
  moved(who); leased = true;
#ifndef CRASH_UNCOUNTED
  if :: deliveries <= BUDGET + FURTHER -> deliveries++ :: else fi;
#endif
  NOTE(if :: open_lease && lost_leases < BUDGET -> lost_leases++ :: else fi);
  NOTE(open_lease = true)
#ifdef FURTHER_BY_CLOCK
  ; a_lease_ago = false
#endif
}

/* The new state after an outcome. Here the promises about states are checked. */
inline put(to) {
  PROMISE(TERMINAL_STAY, !TERMINAL);
  PROMISE(EXHAUSTED, !((to) == compensating && state != compensating || (to) == dead && state != compensating)
    || real_failures >= ATTEMPTS || out == permanent || lost_leases >= BUDGET);
  PROMISE(EXHAUSTED, !((to) == dead && state == compensating)
    || real_undo_failures >= UNDOS || out == permanent || lost_leases >= BUDGET);
  PROMISE(UNDO_OR_DONE, !((to) == succeeded && undoing[gen]));
  PROMISE(EFFECT_ONCE, (to) == succeeded || effects[gen] == 0);
  state = to
}

/* The entry is dead-lettered while an outcome exists: this process's own, or a success that has waited since before the further lease. */
#ifdef HOLDS
#define OUTLIVES(v) ((v) != w && waits[v] && at_it[v] && OUTWAITED(v))
#define LOSES_HELD (BESIDE(reported) && BESIDE(at_it) || OUTLIVES(0) || OUTLIVES(1) THIRD(|| OUTLIVES(2)))
#if FURTHER == 1
#define OUTWAITED(v) waited[v]
#else
#define OUTWAITED(v) true
#endif
#else
#define LOSES_HELD false
#endif

/* The write of an attempt's outcome (the SET of Store.Settle). The library computes it from the row as claimed. While the fence
   holds, that equals the present row. Once the fence is lost, no computed count is written. So an attempt of the model
   carries no counts, except in the mutants that write without the fence. */
#ifdef OWN_COUNTS
#define MY_FAILURES my_failures
#define MY_UNDOS    my_undos
#else
#define MY_FAILURES failures
#define MY_UNDOS    undos
#endif
inline write_outcome(who) {
  PROMISE(ONE_EPOCH, my_gen == gen);
  if
  :: out == success && !undo -> put(succeeded)
  :: out == success && undo -> put(compensated)
  :: (out == failure || out == permanent) && !undo ->
     failures = MY_FAILURES + 1;
     NOTE(if :: said_failure -> real_failures++; said_failure = false :: else fi);
     if
#ifdef EXHAUST_EARLY
     :: out == permanent || failures + 1 >= ATTEMPTS ->
#else
     :: out == permanent || failures >= ATTEMPTS ->
#endif
        if :: put(compensating) :: put(dead) fi              /* the type has a compensation, or has none */
     :: else -> put(retrying); due = false
     fi
  :: (out == failure || out == permanent) && undo ->
     undos = MY_UNDOS + 1;
     NOTE(if :: said_failure -> real_undo_failures++; said_failure = false :: else fi);
     if
     :: out == permanent || undos >= UNDOS -> put(dead)
     :: else -> put(compensating); due = false
     fi
  :: out == spare -> due = false
  :: out == crashed ->
     PROMISE(HELD_FIRST, !LOSES_HELD);
     if
#ifndef UNDO_CRASH_UNCOUNTED
     :: undo -> undos = MY_UNDOS + 1; put(dead)               /* the row shows that the compensation has begun */
#else
     :: undo -> put(dead)
#endif
     :: !undo -> put(dead)
     :: !undo -> put(compensating)                            /* CompensateCrashed */
     fi
  fi;
  moved(who); leased = false; deliveries = 0; ended = TERMINAL;
  NOTE(last_writer = w + 1; wrote = true; lost_leases = 0; open_lease = false)
}

/* The WHERE of Store.Settle: a success, also of a compensation, needs no version. Every other outcome is guarded by the version. */
#ifdef ABSORB_COMPENSATING
#define ABSORBABLE OPEN
#elif defined(ABSORB_TERMINAL)
#define ABSORBABLE (state != none)
#else
#define ABSORBABLE (undo -> state == compensating : state == pending || state == retrying)
#endif
#ifdef EPOCH_IGNORED
#define SAME_EPOCH true
#else
#define SAME_EPOCH (my_epoch == epoch)
#endif
#ifdef UNDO_FENCED
#define ABSORBS (out == success && !undo)
#else
#define ABSORBS (out == success)
#endif
#ifdef FAILURE_UNFENCED
#define FENCED (fence[w] || out == failure && SAME_EPOCH)
#elif defined(COMPENSATION_UNFENCED)
#define FENCED (fence[w] || undo)
#else
#define FENCED fence[w]
#endif
#define FITS (ABSORBS && SAME_EPOCH && ABSORBABLE || !ABSORBS && FENCED && OPEN)

/* ==== steps on the queue ==== */

/* enqueue.lua: a member of the queue keeps its due time. */
inline announce() {
  if
#ifdef ANNOUNCE_OVERWRITES
  :: true -> in_queue = true; ripe = true; queue_lease = 0
#else
  :: !in_queue -> in_queue = true; ripe = true; queue_lease = 0
  :: else
#endif
  fi
}

/* settle.lua: only under the lease of its claim. */
#ifdef ACK_WITHOUT_TOKEN
#define STILL_LEASED in_queue
#else
#define STILL_LEASED (in_queue && queue_lease == w + 1)
#endif
inline ack_remove() {
  if :: STILL_LEASED -> in_queue = false; ripe = false; queue_lease = 0 :: else fi
}
inline ack_again() {
  if :: STILL_LEASED -> ripe = true; queue_lease = 0 :: else fi
}

/* ==== the producer: Record, COMMIT, and how the library sees its end (Receipt.ended) ==== */

inline insert(with_lease) {
  state = pending; told = true; committed = true;
  if :: with_lease -> lease_to(INSERTED) :: else fi
}

active proctype Producer() {
#ifdef ANNOUNCED    /* the producer always reaches the queue; this tests the rest of the protocol */
  atomic { insert(false) };
  goto announcing;
#else
  if
  :: atomic { insert(true) };                        /* inserted with a lease */
     if
     :: fresh = verify                               /* committed: the entry is read back */
     :: goto announcing                              /* the outcome of the COMMIT is unknown */
     :: skip                                         /* the process dies here, or cannot be reached */
     fi
  :: atomic { insert(false); if :: due = false :: skip fi }; /* with or without a delay */
     if
     :: fresh = by_id                                /* the entry is claimed by id */
     :: goto announcing
     :: skip                                         /* Receipt.Committed is never called */
     fi
  :: atomic { told = true; absent = true };          /* rolled back */
     if
     :: fresh = verify                               /* rolled back to a savepoint: the producer does not notice */
     :: fresh = by_id
     :: goto announcing                              /* the outcome of the COMMIT is unknown */
     :: skip
     fi
  fi;
#endif
  goto done;
announcing:
  if
  :: atomic { announce() }
#if LOSS > 0
  :: skip
#endif
  fi;
done:
  skip
}

/* ==== a process: it claims, runs and settles the entry ==== */

mtype = { success, failure, permanent, spare, crashed, rest };

inline forget() {
  fence[w] = false; running[w] = false;
  if :: queue_lease == w + 1 -> queue_lease = 0 :: else fi;
  undo = false; out = none; my_epoch = 0; from_queue = false; inserted_leased = false; ended = false;
#ifdef HOLDS
  holds[w] = false; stuck[w] = false; waits[w] = false; waited[w] = false;
  NOTE(at_it[w] = false; late[w] = false; reported[w] = false);
#endif
#ifdef OWN_COUNTS
  my_failures = 0; my_undos = 0;
#endif
  NOTE(expired[w] = false; changed[w] = false; if :: last_writer == w + 1 -> last_writer = 0 :: else fi);
  NOTE(my_gen = 0; was_due = false; said_failure = false; wrote = false)
}

/* A process claims no entry that it holds, except to count the lost leases of a stuck attempt. It dead-letters no entry
   that it holds before storing the outcome. */
#ifdef HOLDER_CLAIMS_AGAIN
#define REFUSED false
#elif defined(STUCK_REFUSED)
#define REFUSED BESIDE(holds)
#elif defined(HOLDS)
#define REFUSED (BESIDE(holds) && !BESIDE(stuck))
#else
#define REFUSED false
#endif
#ifdef STUCK_CLAIMS_AGAIN
#define OWN_STUCK false
#else
#define OWN_STUCK (BESIDE(holds) && BESIDE(stuck))
#endif
#if defined(HOLDS) && !defined(TAKE_OUT_FIRST)
#define OUTCOME_FIRST (out == crashed && BESIDE(holds) && !BESIDE(stuck))
#else
#define OUTCOME_FIRST false
#endif

/* The row as an attempt reads it. Beyond the budget no handler runs (outcome crashed). */
inline read_row() {
  undo = (state == compensating); my_epoch = epoch; inserted_leased = false;
#ifdef OWN_COUNTS
  my_failures = failures; my_undos = undos;
#endif
  if
  :: deliveries > BUDGET + FURTHER -> out = crashed
#ifdef HOLDS
  :: deliveries == BUDGET + 1 && FURTHER == 1 -> out = rest; THIRD(waited[2] = waits[2];)
     waited[0] = waits[0]; waited[1] = waits[1]
  :: deliveries <= BUDGET && OWN_STUCK -> out = rest          /* the lease is counted, and nothing runs here */
#endif
  :: else
  fi;
  NOTE(my_gen = gen; was_due = due)
}

inline effect() {
  NOTE(if :: undo -> undone[my_gen]++ :: else -> effects[my_gen]++ fi);
  PROMISE(EFFECT_ONCE, effects[my_gen] <= 1 && undone[my_gen] <= 1)
}

#if defined(ADMITTED_TWICE) || defined(HOLDER_CLAIMS_AGAIN)
#define ADMITTED_ALREADY false
#elif defined(STUCK_CLAIMS_AGAIN)
#define ADMITTED_ALREADY (BESIDE(holds) && !BESIDE(stuck))
#else
#define ADMITTED_ALREADY BESIDE(holds)
#endif

/* A plain handler returns. From now on its outcome waits to be stored. */
inline returned() {
  running[w] = false
#ifdef HOLDS
  ; waits[w] = (out == success);
  NOTE(reported[w] = (at_it[w] && (undo -> state == compensating : state == pending || state == retrying) && (waits[w] || !stuck[w] && !late[w])));
  stuck[w] = false
#endif
}

/* Observer.OutcomeDropped: the entry has moved on. Another attempt's success takes precedence over this outcome. */
#define DONE (state == succeeded || state == compensated)
inline drop() {
#if defined(ONE_PROCESS) && !defined(THREE)
  PROMISE(HELD_FIRST, !reported[w] || changed[w] || wrote || out == spare || DONE);
#endif
  PROMISE(NOTHING_LOST, expired[w] || changed[w] || wrote || out == spare || DONE);
  PROMISE(TRUE_ANSWERS, !(wrote && last_writer == w + 1));
  forget()
}

#ifdef THREE
#define MAY_DIE :: atomic { w == 1 && crashes < CRASH -> crashes++; forget() } goto idle
#define MAY_KILL :: atomic { w == 1 && CRASH > 0 -> forget() } goto idle
#elif CRASH > 0
#define MAY_DIE :: atomic { crashes < CRASH -> crashes++; forget() } goto idle
#define MAY_KILL :: atomic { true -> forget() } goto idle
#else
#define MAY_DIE
#define MAY_KILL
#endif
#if LOSS > 0 && defined(RESTS)  /* a queue that is never updated keeps the entry */
#define MAY_BE_UNHEARD :: atomic { losses < LOSS -> losses++; forget() } goto idle
#elif LOSS > 0
#define MAY_BE_UNHEARD :: atomic { true -> forget() } goto idle
#else
#define MAY_BE_UNHEARD
#endif

#define TAKES_OVER (inserted_leased && token == INSERTED)

/* claim.take: the delivery of the process's own lease is already counted. */
inline take() {
  if
#ifdef TAKEOVER_COUNTS
  :: TAKES_OVER -> NOTE(open_lease = false); lease_to(CLAIM(w))
#else
  :: TAKES_OVER && deliveries > 0 -> moved(CLAIM(w)); leased = true
#endif
  :: else -> lease_to(CLAIM(w))
  fi
}

#ifdef NO_EARLY_GUARD
#define CLAIMABLE (OPEN && (!leased || TAKES_OVER) && LONG_OVER && !REFUSED)
#else
#define CLAIMABLE (OPEN && due && (!leased || TAKES_OVER) && LONG_OVER && !REFUSED)
#endif

proctype Worker(byte w) {
  mtype out = none;
  bool undo;                          /* the attempt runs the compensation */
  byte my_epoch;
  bool from_queue, inserted_leased;          /* from_queue: the entry has a lease of the queue; inserted_leased: its insert leased it */
  bool ended;                         /* the written state is terminal */
#ifdef OWN_COUNTS
  byte my_failures, my_undos;
#endif
  byte my_gen; bool was_due, said_failure, wrote; /* used only by the promises */

idle:
  if
  :: atomic { w == 0 && fresh == verify ->                    /* verifyFresh, run */
       fresh = nothing;
#ifdef FAST_UNVERIFIED
       fence[w] = (state == pending && token == INSERTED); NOTE(was_due = true); goto claimed
#else
       if
       :: state == pending && token == INSERTED ->
          if
          :: leased -> fence[w] = true; read_row(); goto claimed
          :: inserted_leased = true; goto claim                      /* its lease has ended: claimFresh */
          fi
       :: else -> goto idle                                   /* giveBack */
       fi
#endif
     }
  :: atomic { w == 0 && fresh == by_id -> fresh = nothing; goto claim }
  :: atomic { in_queue && ripe -> ripe = false; queue_lease = w + 1; from_queue = true; goto claim } /* Queue.ClaimDue */
#ifdef POLL
  :: atomic { OPEN && due && !leased -> goto claim }          /* Store.Due and Store.Scan, which are only hints too */
#endif
#if CRASH > 0
  :: atomic { w == 0 && fresh != nothing && crashes < CRASH -> crashes++; fresh = nothing; goto idle }
#endif
  fi;

claim:                                                        /* Store.Claim */
  if
  MAY_DIE
  :: atomic {
       if :: token == CLAIM(w) -> token = OTHERS :: else fi;  /* a new token is created */
       if
#ifdef QUEUE_TRUSTED
       :: from_queue && OPEN && due -> fence[w] = true; read_row(); goto claimed /* read without a claim: only the queue's lease counts */
       :: !from_queue && CLAIMABLE -> take(); fence[w] = true; read_row(); goto claimed
#else
       :: CLAIMABLE -> take(); fence[w] = true; read_row(); goto claimed
#endif
       :: !CLAIMABLE && OPEN -> goto waiting
       :: !OPEN -> goto gone
       fi }
#if UNKNOWN > 0
  :: atomic { unknowns < UNKNOWN -> unknowns++;
       if :: token == CLAIM(w) -> token = OTHERS :: else fi;
       if :: CLAIMABLE -> take() :: skip fi;
       inserted_leased = false; goto release }                       /* ReleaseUnknown */
#endif
  fi;

waiting:                                                      /* settleUnclaimed, ClaimWithSlots */
  if
  MAY_DIE
  MAY_BE_UNHEARD
  :: atomic { if :: from_queue -> ack_again() :: else -> announce() fi; forget(); goto idle }
  fi;

gone:
  if
  MAY_DIE
  MAY_BE_UNHEARD
  :: atomic { if :: from_queue -> ack_remove() :: else fi; forget(); goto idle }
  fi;

claimed:                                                      /* startClaimed, startCalls */
  if
  MAY_DIE
#if GIVEBACK > 0
  :: atomic { givebacks < GIVEBACK -> givebacks++; fence[w] = false; out = none; goto release } /* giveBack */
#endif
  :: atomic { out == crashed -> goto settle }
#ifdef HOLDS
  :: atomic { out == rest -> forget(); goto idle }            /* nothing runs, and the lease ends by itself */
  :: atomic { out == none && ADMITTED_ALREADY -> fence[w] = false; goto release } /* admit: this process claimed it twice */
  :: atomic { out == none && !ADMITTED_ALREADY ->
       PROMISE(HELD_FIRST, !BESIDE(at_it));
       holds[w] = true; NOTE(at_it[w] = (my_gen == gen); late[w] = !fence[w]);
#else
  :: atomic { out != crashed ->
#endif
       PROMISE(NO_PHANTOM, state != none);
       PROMISE(NEVER_EARLY, was_due);
       NOTE(if :: undo -> undoing[my_gen] = true :: else fi);
       running[w] = true; goto handling }
  fi;

#if UNKNOWN > 0 || GIVEBACK > 0 || defined(HOLDS)
release:                                                      /* Store.Release */
  if
  MAY_DIE
  :: atomic {
       if
#ifdef RELEASE_UNTOKENED
       :: OPEN && leased && deliveries > 0 ->
#else
       :: token == CLAIM(w) && deliveries > 0 ->
#endif
          moved(OTHERS); leased = false; NOTE(open_lease = false); /* lease_until = 0: the token cannot release again */
#ifndef RELEASE_COUNTS
          deliveries--
#endif
       :: else
       fi;
       goto waiting }
  :: goto waiting                                             /* it fails, and the lease ends by itself */
  fi;
#endif

handling:                                                     /* callHandler */
  if
  MAY_KILL
#ifdef RENEW_REVIVES                                          /* the renewal writes the row as claimed */
  :: atomic { leased = true; state = (undo -> compensating : pending); goto handling }
#endif
#ifdef RENEW
  :: atomic { !(fence[w] && OPEN) -> out = spare; returned(); goto settle } /* the handler's context ends, and the handler returns */
#endif
#if STUCK > 0
  :: atomic { !stuck[w] && stucks < STUCK -> stucks++; stuck[w] = true; if :: goto handling :: goto gone_for_good fi }
#endif
  :: atomic { out = success; returned(); goto settle }
  :: atomic { out = failure; NOTE(said_failure = true); returned(); goto settle }
  :: atomic { out = permanent; NOTE(said_failure = true); returned(); goto settle }
  :: atomic { spared < SPARED -> spared++; out = spare; returned(); goto settle }
  :: atomic { out = success; running[w] = false;              /* run: the effect, SettleTx, COMMIT */
       if
       :: fence[w] && OPEN -> effect(); write_outcome(COMMIT(w)); goto stored
       :: else ->
#ifdef NO_FENCE
          effect();
#endif
          drop(); goto idle
       fi }
#if UNKNOWN > 0
  :: atomic { unknowns < UNKNOWN && fence[w] && OPEN -> unknowns++; out = success; running[w] = false;
       if :: effect(); write_outcome(COMMIT(w)) :: skip fi;
#ifdef UNKNOWN_IS_SUCCESS
       goto stored }
#elif defined(UNKNOWN_IS_FAILURE)
       out = failure; goto settle }
#else
       goto resolve }
#endif
#endif
  fi;

#if UNKNOWN > 0
resolve:                                                      /* committed: Store.Resolve, and the token */
  if
  MAY_DIE
  :: atomic { token == COMMIT(w) -> goto stored }
  :: atomic { out = spare; NOTE(wrote = false; if :: last_writer == w + 1 -> last_writer = 0 :: else fi); goto settle }
  fi;
#endif

settle:                                                       /* writeOutcomes: Store.Settle until it answers */
#ifdef QUEUE_FIRST
  atomic { if :: from_queue && out == success -> ack_remove() :: else fi };
#endif
  if
  MAY_DIE
#ifdef HOLDS
  :: atomic { OUTCOME_FIRST -> forget(); goto idle }          /* the handler has returned in the meantime */
#ifdef RENEW_FORGETS                                          /* an entry that a renewal does not find is no longer held */
  :: atomic { holds[w] && !fence[w] -> holds[w] = false; goto settle }
#endif
#endif
  :: atomic { FITS && !OUTCOME_FIRST -> write_outcome(SETTLE(w)); goto stored }
#ifdef SETTLE_BLIND
  :: atomic { !FITS -> drop(); goto idle }
#else
  :: atomic { !FITS && token == SETTLE(w) -> goto stored }    /* an earlier try whose answer was lost (explain) */
  :: atomic { !FITS && token != SETTLE(w) -> drop(); goto idle }
#endif
#if UNKNOWN > 0
  :: atomic { unknowns < UNKNOWN && FITS && !OUTCOME_FIRST -> unknowns++; write_outcome(SETTLE(w));
#ifdef SETTLE_REREADS
       if :: OPEN -> fence[w] = true :: else fi;
#endif
       goto settle }
#endif
  fi;

#if STUCK > 0
gone_for_good:                                                /* the handler never returns */
  if
  MAY_KILL
  :: false
  fi;
#endif

stored:                                                       /* Observer.Settled; notifyQueue */
  if
  MAY_DIE
  MAY_BE_UNHEARD
  :: atomic {
       PROMISE(TRUE_ANSWERS, wrote);
       if
       :: from_queue && ended -> ack_remove()
       :: from_queue && !ended -> ack_again()
       :: !from_queue && !ended -> announce()
       :: else
       fi;
       forget(); goto idle }
  fi
}

/* ==== time ==== */

/* A lease ends. While a handler runs, that may happen any number of times. While a live process has only to write an
   outcome, it may happen STALLS times, or any number of times without STALLS. */
#ifdef STALLS
#define MAY_STALL (stalls < STALLS)
#define STALL     stalls++
#else
#define MAY_STALL true
#define STALL     skip
#endif
/* The further lease begins when the database answers. A success that waited until then is offered to the database before that lease ends. */
#if FURTHER == 1
#define OFFERED(v) (!waits[v] || !waited[v])
#define MAY_END (leased && OFFERED(0) && OFFERED(1) THIRD(&& OFFERED(2)))
#else
#define MAY_END leased
#endif
proctype LeaseClock() {
  do
  :: atomic { MAY_END && !fence[0] && !fence[1] THIRD(&& !fence[2]) -> leased = false }
  :: atomic { MAY_END && fence[0] && running[0] -> leased = false; NOTE(expired[0] = true) }
  :: atomic { MAY_END && fence[1] && running[1] -> leased = false; NOTE(expired[1] = true) }
  :: atomic { MAY_END && fence[0] && !running[0] && MAY_STALL -> STALL; leased = false; NOTE(expired[0] = true) }
  :: atomic { MAY_END && fence[1] && !running[1] && MAY_STALL -> STALL; leased = false; NOTE(expired[1] = true) }
#ifdef THREE
  :: atomic { MAY_END && fence[2] && running[2] -> leased = false; NOTE(expired[2] = true) }
  :: atomic { MAY_END && fence[2] && !running[2] && MAY_STALL -> STALL; leased = false; NOTE(expired[2] = true) }
#endif
#ifdef FURTHER_BY_CLOCK     /* an outage may last any time */
  :: atomic { !leased && !a_lease_ago -> a_lease_ago = true }
#endif
  od
}
proctype DueClock() {
  do :: atomic { OPEN && !due -> due = true } od
}
proctype QueueClock() {
  do
#ifdef QUEUE_TRUSTED
  :: atomic { in_queue && !ripe -> ripe = true; NOTE(if :: queue_lease > 0 -> expired[queue_lease - 1] = true :: else fi) }
#elif defined(RESTS) /* otherwise two processes could take a finished entry from each other forever, each just before the other removes it */
  :: atomic { in_queue && !ripe && (queue_lease == 0 || running[queue_lease - 1]) -> ripe = true }
  :: atomic { in_queue && !ripe && queue_lease > 0 && !running[queue_lease - 1] && MAY_STALL -> STALL; ripe = true }
#else
  :: atomic { in_queue && !ripe -> ripe = true }
#endif
  od
}

/* ==== Engine.Renew: Store.Renew, of attempts whose handler runs or whose outcome waits to be stored ==== */

#ifdef RENEW
#ifdef RENEW_UNFENCED
#define HELD(w) (running[w] && OPEN)
#elif STUCK > 0
#define HELD(w) (fence[w] && OPEN && !stuck[w])
#else
#define HELD(w) (fence[w] && OPEN)
#endif
#ifdef RENEW_BUMPS
#define RENEW_ROW(w) fence[w] && OPEN -> moved(CLAIM(w)); leased = true
#else
#define RENEW_ROW(w) HELD(w) && !leased -> leased = true   /* renewing a valid lease changes nothing in the model */
#endif
proctype Renewer() {
  do
  :: atomic { RENEW_ROW(0) }
  :: atomic { RENEW_ROW(1) }
  THIRD(:: atomic { RENEW_ROW(2) })
  od
}
#endif

/* ==== the reconciler: reads, and enqueues later ==== */

#ifndef NO_RECONCILER
proctype Reconciler() {
  do
  :: atomic { OPEN && !in_queue -> skip }; atomic { announce() }
  od
}
#endif

/* ==== faults of the queue ==== */

#if LOSS > 0 || SPUR > 0
proctype Faults() {
  do
#if LOSS > 0
  :: atomic { losses < LOSS -> losses++; in_queue = false; ripe = false; queue_lease = 0 }
#endif
#if SPUR > 0
  :: atomic { spurs < SPUR && told -> spurs++; in_queue = true; ripe = true; queue_lease = 0 }
#endif
  :: break
  od
}
#endif

/* ==== services and people: Change.After ==== */

#if PERSON > 0
inline change() {
  persons++; moved(OTHERS);
  NOTE(changed[0] = true; changed[1] = true THIRD(; changed[2] = true))
}
inline new_lease_count() { deliveries = 0; leased = false; NOTE(lost_leases = 0; open_lease = false) }
inline new_generation() {
#ifndef SAME_EPOCH_AGAIN
  epoch++;
#endif
#ifdef HOLDS
  holds[0] = false; holds[1] = false; THIRD(holds[2] = false;)
  NOTE(at_it[0] = false; at_it[1] = false; reported[0] = false; reported[1] = false);
  NOTE(THIRD(at_it[2] = false; reported[2] = false;) skip);
#endif
  NOTE(gen++)
}

/* The new due time replaces that of the queue. The update may get lost, like any enqueue. */
inline move() {
  if :: atomic { in_queue = true; ripe = true; queue_lease = 0 } :: skip fi
}

/* A dead entry that a service may still end, because no compensation of its epoch has begun. */
#ifdef ENDS_THE_UNDONE
#define UNDEAD (state == dead)
#else
#define UNDEAD (state == dead && undos == 0)
#endif

proctype Person() {
  do
#ifndef ONLY_PEOPLE
  :: atomic { persons < PERSON && (state == pending || state == retrying || UNDEAD) -> change(); new_lease_count();
       PROMISE(EFFECT_ONCE, effects[gen] == 0);
       if
       :: PROMISE(UNDO_OR_DONE, !undoing[gen]); state = succeeded              /* Complete */
       :: PROMISE(UNDO_OR_DONE, !undoing[gen]); state = cancelled              /* Cancel */
       fi }
  :: atomic { persons < PERSON && (state == pending || state == retrying) ->    /* Reschedule */
       if
       :: leased && deliveries > 0 -> deliveries--; NOTE(open_lease = false)
       :: else
       fi;
       change(); if :: due = true :: due = false fi };
     move()
#endif
#ifndef ONLY_SERVICES
  :: atomic { persons < PERSON && (TERMINAL || state == retrying) ->            /* Requeue */
       change(); new_lease_count(); new_generation();
       failures = 0; undos = 0; due = true; NOTE(real_failures = 0; real_undo_failures = 0);
       if :: state = pending :: state = compensating fi };
     move()
  :: atomic { persons < PERSON && (state == dead || state == retrying || state == compensating) ->
       change(); new_lease_count(); new_generation(); state = by_hand }         /* SettleManually */
#endif
  :: break
  od
}
#endif

init { atomic {
  run Worker(0); run Worker(1);
  THIRD(run Worker(2);)
  run LeaseClock(); run DueClock(); run QueueClock();
#ifdef RENEW
  run Renewer();
#endif
#ifndef NO_RECONCILER
  run Reconciler();
#endif
#if LOSS > 0 || SPUR > 0
  run Faults();
#endif
#if PERSON > 0
  run Person();
#endif
} }

#ifdef ENDS   /* a committed entry is eventually terminal, and stays terminal unless a person acts again */
ltl ends { [] (committed -> <> TERMINAL) }
#endif
#ifdef STAYS  /* the same as TERMINAL_STAY, as a temporal formula; without people */
ltl stays { [] (TERMINAL -> [] TERMINAL) }
#endif
#ifdef RESTS  /* an entry that was rolled back or stays terminal eventually leaves the queue */
ltl rests { (<> [] (absent || TERMINAL)) -> (<> [] !in_queue) }
#endif
