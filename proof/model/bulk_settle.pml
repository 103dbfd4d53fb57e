/*
 * Two outcomes in one call of Store.Settle. One process has run two entries and settles both. Meanwhile leases end,
 * another process takes the entries over, and a service cancels. process_log.pml models a single entry. This model shows
 * outcomes that share a statement, a call and a token. Some of them apply, some do not, some rows are locked, and some
 * statements get no answer.
 *
 * Every atomic{} is one SQL transaction or one local step. -D switches: UNKNOWN, BUSY, ONLY=n, TOLD, and mutants.
 */

#ifndef UNKNOWN
#define UNKNOWN 2       /* lost answers */
#endif
#ifndef BUSY
#define BUSY 2          /* locked rows */
#endif

mtype = { pending, retrying, succeeded, cancelled };
mtype state[2] = pending;
bool leased[2] = true;
bool fence[2] = true;       /* the row's version is the version of the outcome */
byte token[2];              /* 0: not a token of this process; else the token of a call, see call_token */
byte unknowns, busies;

/* Used only by the promises. */
bool wrote[2], last[2];     /* wrote: the outcome was written; last: it is the last write of the row */
byte counted[2];            /* how often the outcome was written */
bool expired[2], changed[2];
byte told;                  /* number of outcomes reported as stored or dropped */

#ifdef ONLY
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
#define COUNTED_ONCE  1
#define TERMINAL_STAY 3
#define NOTHING_LOST  5
#define TRUE_ANSWERS  9

#define OPEN(i) (state[i] == pending || state[i] == retrying)
inline moved(i, by) { fence[i] = false; token[i] = by; last[i] = false }

mtype = { success, failure };
mtype = { untold, stored, dropped, busy };

#ifdef FAILURE_UNFENCED
#define FITS(i) OPEN(i)
#else
#define FITS(i) (OPEN(i) && (kind[i] == success || fence[i]))
#endif

inline write(i) {
  PROMISE(TERMINAL_STAY, OPEN(i));
  state[i] = (kind[i] == success -> succeeded : retrying);
  moved(i, call_token); leased[i] = false;
  wrote[i] = true; last[i] = true; counted[i]++;
  PROMISE(COUNTED_ONCE, counted[i] <= 1)
}

/* One row of a statement: locked by another transaction, changed, or left unchanged. */
inline update(i) {
  if
  :: todo[i] && kind[i] == group && busies < BUSY -> busies++; answer[i] = busy
  :: todo[i] && kind[i] == group && FITS(i) -> write(i); answer[i] = stored; changes++
  :: todo[i] && kind[i] == group && !FITS(i) -> answer[i] = dropped; fewer = true
  :: !(todo[i] && kind[i] == group)
  fi
}

/* When a statement changes fewer rows than it was given, its rows are read again. The token says which were changed (explain). */
inline explain(i) {
  if
  :: todo[i] && kind[i] == group && answer[i] != busy ->
#ifdef SETTLE_BLIND
     skip
#elif defined(ALL_OR_NONE)
     answer[i] = (changes > 0 -> stored : dropped)
#else
     answer[i] = (token[i] == call_token -> stored : dropped)
#endif
  :: else
  fi
}

inline done(i) { if :: kind[i] == group -> todo[i] = false :: else fi }

/* settled: Observer.Settled, Observer.OutcomeDropped, or settleSlowly. */
inline tell(i) {
  if
  :: left[i] && answer[i] == stored -> PROMISE(TRUE_ANSWERS, wrote[i]); left[i] = false; told++
  :: left[i] && answer[i] == dropped ->
     PROMISE(TRUE_ANSWERS, !(wrote[i] && last[i]));
     PROMISE(NOTHING_LOST, wrote[i] || expired[i] || changed[i]);
     left[i] = false; told++
  :: else
  fi;
  answer[i] = untold
}

active proctype Settler() {
  mtype kind[2], answer[2] = untold, group;
  bool todo[2], left[2] = true, fewer;
  byte call_token = 1, changes;

  if :: kind[0] = success :: kind[0] = failure fi;
  if :: kind[1] = success :: kind[1] = failure fi;
call:                                                         /* writeOutcomes: Store.Settle */
  atomic { todo[0] = left[0]; todo[1] = left[1] };
statement:                                                    /* one for successes, one for outcomes guarded by the version, in any order */
  if
  :: atomic { todo[0] || todo[1] ->
       if :: todo[0] -> group = kind[0] :: todo[1] -> group = kind[1] fi;
       update(0); update(1);
       if
       :: fewer -> goto explaining
       :: !fewer -> done(0); done(1); changes = 0; goto statement
       :: unknowns < UNKNOWN -> unknowns++;                   /* its answer is lost, so the whole call is repeated */
          answer[0] = untold; answer[1] = untold; changes = 0; fewer = false;
#ifdef NEW_TOKEN
          call_token++;
#endif
          goto call
       fi }
  :: atomic { !todo[0] && !todo[1] ->
       tell(0); tell(1);
       if
       :: !left[0] && !left[1] -> goto over
       :: else ->                                             /* settleSlowly: the locked rows */
#ifdef BUSY_NEW_TOKEN
          call_token++;
#endif
          goto call
       fi }
  fi;
explaining:
  atomic { explain(0); explain(1); done(0); done(1); changes = 0; fewer = false; goto statement };
over:
  skip
}

/* Another process claims free entries and settles them. */
active proctype Other() {
  byte i, claims;
  do
  :: atomic { claims < 2 && (OPEN(0) && !leased[0] || OPEN(1) && !leased[1]) -> claims++;
       if
       :: OPEN(0) && !leased[0] -> i = 0
       :: OPEN(1) && !leased[1] -> i = 1
       fi;
       moved(i, 0); leased[i] = true };
     if
     :: atomic { OPEN(i) && leased[i] && token[i] == 0 -> moved(i, 0); state[i] = succeeded; leased[i] = false }
     :: atomic { OPEN(i) && leased[i] && token[i] == 0 -> moved(i, 0); state[i] = retrying; leased[i] = false }
     :: skip                                                  /* it dies, or settles too late */
     fi
  :: break
  od
}

active proctype Clock() {
  do
  :: atomic { leased[0] -> leased[0] = false; expired[0] = true }
  :: atomic { leased[1] -> leased[1] = false; expired[1] = true }
  :: break
  od
}

active proctype Service() {
  byte i;
  if
  :: atomic { if :: i = 0 :: i = 1 fi; if :: OPEN(i) -> moved(i, 0); state[i] = cancelled; leased[i] = false; changed[i] = true :: else fi }
  :: skip
  fi
}

#ifdef TOLD   /* every outcome is eventually reported */
ltl told_at_last { <> (told == 2) }
#endif
