/*
 * Entries that share a process with a killer. A killer is an entry whose every attempt ends its process. A process dies with
 * all entries that it holds, and starts again. The model counts how many leases in a row innocent entries lose beside a
 * killer, and which of them are dead-lettered. process_log.pml models a single entry.
 *
 * Every atomic{} is one claim, one step inside a process, one outcome made durable, or one death. Here a lease ends only
 * with its process. process_log.pml has leases that end while the process lives.
 *
 * -D switches: the numbers below, ALLOWED, FICKLE, STUCK, ONLY=n, OVER, and mutants.
 */

#ifndef PROCESSES
#define PROCESSES 1
#endif
#ifndef KILLERS
#define KILLERS 1       /* entries 0 to KILLERS-1; an attempt of a killer never returns, and may end its process */
#endif
#ifndef INNOCENTS
#define INNOCENTS 3
#endif
#ifndef ACCIDENTS
#define ACCIDENTS 0     /* deaths that no entry caused: kill -9, a lost machine */
#endif
#ifndef FEW
#define FEW 2           /* most entries with one lost lease that one process holds; about sqrt(Concurrency) */
#endif
#ifndef ALLOWED
#define ALLOWED 0       /* innocents that may be dead-lettered */
#endif
#define ENTRIES (KILLERS + INNOCENTS)
#define BUDGET 3        /* crashBudget in internal/engine */
#define SUSPECT 2       /* aloneAfter in internal/features/quarantine */
#define KILLER(i) ((i) < KILLERS)
#define NOBODY 255

mtype = { free, running, waiting, ended, taken_out }; /* waiting: the handler has returned, and its outcome is not stored */
mtype at[ENTRIES] = free;
byte by[ENTRIES];           /* the process that holds it */
byte lost[ENTRIES];         /* leases in a row that ended without an outcome */

byte lane[PROCESSES] = NOBODY; /* the only suspect that may run in the process */
byte once[PROCESSES];       /* held entries that have lost one lease */
byte accidents;
bool stuck[ENTRIES];        /* the attempt runs on after its timeout and no longer counts as the suspect */
bool fickle[ENTRIES];

/* Used only by the promises. */
byte innocents_out;

#ifdef OVER
#define PROMISE(n, holds) skip
#elif defined(ONLY)
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
#define INNOCENT   1        /* at most ALLOWED innocents are dead-lettered */
#define ONE_EACH   2        /* a death costs at most one entry its third lease */
#define FEW_EACH   3        /* a death costs at most FEW entries their second lease */

/* ---- the rule: which entries a process may claim beside those it holds ---- */

#ifdef ONCE_TOGETHER        /* any number of entries with one lost lease */
#define MANY false
#else
#define MANY (once[p] >= FEW)
#endif
#ifdef ONCE_BESIDE_SUSPECT  /* also beside a suspect */
#define LANE_TAKEN false
#define ONCE_HELD  false
#else
#define LANE_TAKEN (lane[p] != NOBODY)
#define ONCE_HELD  (once[p] > 0)
#endif
#ifdef NO_LANE
#define SECOND_SUSPECT false
#else
#define SECOND_SUSPECT (lane[p] != NOBODY)
#endif
#ifdef FRESH_APART          /* h: entries without a lost lease also wait for the suspect */
#define FRESH_WAITS (lane[p] != NOBODY)
#define OTHERS_HELD (held > 0)
#else
#define FRESH_WAITS false
#define OTHERS_HELD false
#endif
#define ADMITTED(i) (lost[i] == 0 && !FRESH_WAITS || lost[i] == 1 && !MANY && !LANE_TAKEN \
  || lost[i] >= SUSPECT && !SECOND_SUSPECT && !ONCE_HELD && !OTHERS_HELD)

inline leave(i) {
  if :: lane[by[i]] == i -> lane[by[i]] = NOBODY :: else fi
}
/* The outcome is durable, or the process no longer holds the entry. */
inline let_go(i) {
  leave(i);
  if :: lost[i] == 1 -> once[by[i]]-- :: else fi;
  stuck[i] = false
}

/* The process dies with all entries it holds. */
inline die(p) {
  d_step {
    second = 0; third = 0; k = 0;
    do
    :: k < ENTRIES ->
       if
       :: (at[k] == running || at[k] == waiting) && by[k] == p ->
          at[k] = free; by[k] = 0; stuck[k] = false; lost[k]++;
          second = second + (lost[k] == 2 -> 1 : 0);
          third = third + (lost[k] == BUDGET -> 1 : 0)
       :: else
       fi;
       k++
    :: else -> break
    od;
    lane[p] = NOBODY; once[p] = 0; k = 0
  };
  PROMISE(ONE_EACH, third <= 1);
  PROMISE(FEW_EACH, second <= FEW);
  second = 0; third = 0
}

proctype Entry(byte i) {
  byte p, k, second, third;
#ifdef FRESH_APART
  byte held;
#endif
  do
  :: atomic { at[i] == free && lost[i] >= BUDGET ->           /* deadLetter, one lease later */
       at[i] = taken_out;
       innocents_out = innocents_out + (KILLER(i) -> 0 : 1);
       PROMISE(INNOCENT, innocents_out <= ALLOWED);
       break }
  :: atomic { at[i] == free && lost[i] < BUDGET ->            /* picker.accept */
       if
       :: p = 0
#if PROCESSES > 1
       :: p = 1
#endif
       fi;
#ifdef FRESH_APART
       held = 0; k = 0;
       do
       :: k < ENTRIES -> held = held + ((at[k] == running || at[k] == waiting) && by[k] == p -> 1 : 0); k++
       :: else -> break
       od;
       k = 0;
#endif
       if
       :: ADMITTED(i) ->
          at[i] = running; by[i] = p;
          if
          :: lost[i] == 1 -> once[p]++
          :: lost[i] >= SUSPECT -> lane[p] = i
          :: else
          fi
       :: else
       fi;
       p = 0 }
  :: atomic { at[i] == running && KILLER(i) -> p = by[i]; die(p); p = 0 }
#ifdef STUCK
  :: atomic { at[i] == running && KILLER(i) && !stuck[i] -> stuck[i] = true; leave(i) } /* needRenewal */
#endif
#ifdef FICKLE
  :: atomic { at[i] == running && KILLER(i) && !fickle[i] ->  /* it returns an error once, which resets its lost leases */
       fickle[i] = true; let_go(i); at[i] = free; lost[i] = 0; by[i] = 0 }
#endif
  :: atomic { at[i] == running && !KILLER(i) ->               /* Finish */
       at[i] = waiting
#ifdef LEFT_AT_RETURN
       ; leave(i)
#endif
     }
  :: atomic { at[i] == waiting -> let_go(i); at[i] = ended; by[i] = 0; break } /* settled */
  od
}

#if ACCIDENTS > 0
active proctype Accidents() {
  byte k, second, third;
  do
  :: atomic { accidents < ACCIDENTS -> accidents++; die(0) }
#if PROCESSES > 1
  :: atomic { accidents < ACCIDENTS -> accidents++; die(1) }
#endif
  :: break
  od
}
#endif

init { atomic {
  byte n;
  for (n : 0 .. ENTRIES - 1) { run Entry(n) }
} }

#define DONE(i) (at[i] == ended || at[i] == taken_out)
#ifdef OVER   /* every entry eventually ends: the rule makes no entry wait forever */
#if ENTRIES == 2
ltl over { <> (DONE(0) && DONE(1)) }
#elif ENTRIES == 3
ltl over { <> (DONE(0) && DONE(1) && DONE(2)) }
#else
ltl over { <> (DONE(0) && DONE(1) && DONE(2) && DONE(3)) }
#endif
#endif
