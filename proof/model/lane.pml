/*
 * What entries do to each other when one of them kills: some entries, a few of which end the process of every attempt, and
 * processes that die with all they hold and start again. process_log.pml is one entry's life; here is how many leases in a
 * row innocent entries lose beside a killer, and which are taken out for it.
 *
 * Every atomic{} is one claim, one step inside a process, one outcome made durable, or one death. A lease ends here only
 * with its process; what becomes of one that ends under a living process is in process_log.pml.
 *
 * -D switches: how many there are (below), ALLOWED, FICKLE, STUCK, ONLY=n, OVER, and mutants.
 */

#ifndef PROCESSES
#define PROCESSES 1
#endif
#ifndef KILLERS
#define KILLERS 1       /* entries 0 to KILLERS-1: an attempt of theirs never returns, but may end its process */
#endif
#ifndef INNOCENTS
#define INNOCENTS 3
#endif
#ifndef ACCIDENTS
#define ACCIDENTS 0     /* deaths that no entry has caused: kill -9, a lost machine */
#endif
#ifndef FEW
#define FEW 2           /* entries that have lost one lease and are held by one process; about sqrt(Concurrency) */
#endif
#ifndef ALLOWED
#define ALLOWED 0       /* innocents that may be taken out */
#endif
#define ENTRIES (KILLERS + INNOCENTS)
#define BUDGET 3        /* crashBudget */
#define SUSPECT 2       /* suspectAfter */
#define KILLER(i) ((i) < KILLERS)
#define NOBODY 255

mtype = { free, running, waiting, ended, taken_out }; /* waiting: the handler has returned, its outcome is not stored */
mtype at[ENTRIES] = free;
byte by[ENTRIES];           /* the process that holds it */
byte lost[ENTRIES];         /* leases in a row that ended with no outcome */

byte lane[PROCESSES] = NOBODY; /* the suspect that is in it */
byte once[PROCESSES];       /* held entries that have lost one lease */
byte accidents;
bool stuck[ENTRIES];        /* it runs on after its timeout, and has left the lane */
bool fickle[ENTRIES];

/* What only the promises look at. */
byte innocents_out;

#ifdef OVER
#define PROMISE(n, holds) skip
#elif defined(ONLY)
#define PROMISE(n, holds) assert((n) != ONLY || (holds))
#else
#define PROMISE(n, holds) assert(holds)
#endif
#define INNOCENT   1        /* no more than ALLOWED innocents are taken out */
#define ONE_EACH   2        /* a death takes the third lease of one entry at most */
#define FEW_EACH   3        /* and the second lease of FEW at most */

/* ---- the rule: what a process may claim beside what it holds ---- */

#ifdef ONCE_TOGETHER        /* of those that have lost one lease, any number */
#define MANY false
#else
#define MANY (once[p] >= FEW)
#endif
#ifdef ONCE_BESIDE_SUSPECT  /* and beside a suspect, too */
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
#ifdef FRESH_APART          /* h: what has lost none waits for the suspect as well */
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
/* The outcome is durable, or the entry is its process's no more. */
inline let_go(i) {
  leave(i);
  if :: lost[i] == 1 -> once[by[i]]-- :: else fi;
  stuck[i] = false
}

/* The process dies with all it holds. */
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
  :: atomic { at[i] == free && lost[i] >= BUDGET ->           /* a.t.crashed, a further lease later */
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
  :: atomic { at[i] == running && KILLER(i) && !stuck[i] -> stuck[i] = true; leave(i) } /* dispatcher.needRenewal */
#endif
#ifdef FICKLE
  :: atomic { at[i] == running && KILLER(i) && !fickle[i] ->  /* once it returns an error: all its lost leases are forgiven */
       fickle[i] = true; let_go(i); at[i] = free; lost[i] = 0; by[i] = 0 }
#endif
  :: atomic { at[i] == running && !KILLER(i) ->               /* dispatcher.finish */
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
#ifdef OVER   /* every entry ends at last: none is kept waiting for ever by the rule */
#if ENTRIES == 2
ltl over { <> (DONE(0) && DONE(1)) }
#elif ENTRIES == 3
ltl over { <> (DONE(0) && DONE(1) && DONE(2)) }
#else
ltl over { <> (DONE(0) && DONE(1) && DONE(2) && DONE(3)) }
#endif
#endif
