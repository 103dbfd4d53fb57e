//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// Env is the environment variable that arms a point.
const Env = "COMPENSATOR_FAILPOINT"

// Points returns every point, in the order of an entry's life.
func Points() []Point { return slices.Clone(points) }

var points = []Point{
	EntryInserted, CommitNext, CommitDone, CommitReported,
	CommitFound, IDsResolved, EntryReadBack, FreshClaimed, EnqueueNext, Enqueued, QueueClaimed, DueRead, LimitLocked, ClaimLocked, ClaimWritten,
	PermitsWritten, ClaimCommitted, ClaimReleased, OverdueClaimed, CrashesCounted,
	AttemptStarted, BatchStarted, BatchBroken, BatchEnded, HandlerReturned, CallReturned, ThenReturned, OutcomeInTransaction, HandlerCommitted, LeaseRenewed,
	OrderingJoined, OrderingRead, OrderingNoted, OrderingBlocked, OrderingLeft, OrderingMoved, OrderingFollowed,
	OutcomesNext, OutcomesPart, OutcomesStored, QueueSettled,
	OwnerChecked, LeadershipAsked, HeadsRead, PageScanned, RebuildBegun, RebuildEnqueued,
	MessagesClaimed, MessagesRead, MessagesWritten, BatchHalved, AsideSettled, MessagesSettled, MessagesAcknowledged,
	RowsTaken, RowsAdopted,
	CaseOpened, CaseClosed, LimitChanged, OperationWritten, AuditWritten, BatchRecorded, ChangeCommitted, ResultInTx, ResultsWritten, FaultsWritten, AttemptsWritten, StatsAdded, BacklogCounted, InstanceEnds, PurgePart, MarksRead, MarkMoved, SlotTaken, MigrationPart,
	StopBegun, LoopsEnded, HandlersEnded, OutcomesDrained,
}

var armed Point

var reachesLeft atomic.Int64

func init() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	var err error
	if armed, err = arm(text); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Env, err)
		os.Exit(2)
	}
}

func arm(text string) (Point, error) {
	name, nth, _ := strings.Cut(text, ":")
	n := int64(1)
	if nth != "" {
		var err error
		if n, err = strconv.ParseInt(nth, 10, 64); err != nil || n < 1 {
			return "", fmt.Errorf("%q: want name or name:nth, nth from 1", text)
		}
	}
	if !slices.Contains(points, Point(name)) {
		return "", fmt.Errorf("unknown point %q", name)
	}
	reachesLeft.Store(n)
	return Point(name), nil
}

// Reach writes Farewell to stderr before it ends the process, so that a parent can recognise this end.
func Reach(p Point) {
	if p != armed || reachesLeft.Add(-1) != 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "%s%s\n", Farewell, p)
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// Farewell begins the last line that a process writes to stderr before it ends itself.
const Farewell = "failpoint: died at "
