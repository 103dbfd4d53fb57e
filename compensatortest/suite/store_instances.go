package suite

import (
	"strings"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/compensator-go/compensator/processlog"
)

var instancePromises = []storePromise{
	{"InstanceIsReadBack", false, ofOperations((*storeTest).instanceIsReadBack)},
	{"EndedInstanceStaysEnded", false, ofOperations((*storeTest).endedInstanceStaysEnded)},
	{"InstancesUnseenForLongAreForgotten", false, ofOperations((*storeTest).instancesUnseenForLongAreForgotten)},
}

// instances asserts that all times come from the database's clock. It sets them to zero for comparisons.
func (t *storeTest) instances() []processlog.Instance {
	t.Helper()
	now, err := t.ops().StatsClock(t.ctx)
	require.NoError(t, err)
	found, err := t.ops().Instances(t.ctx)
	require.NoError(t, err)
	for i := range found {
		p := &found[i]
		assert.WithinDuration(t, now, p.SeenAt.Add(p.Unseen), time.Minute)
		assert.False(t, p.StartedAt.After(p.SeenAt))
		p.StartedAt, p.SeenAt, p.Unseen = time.Time{}, time.Time{}, 0
	}
	return found
}

func (t *storeTest) instanceIsReadBack() {
	a := processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-1:17", Library: "v0.1.0", Build: "v7 '\\", Running: true, Queue: processlog.InstanceQueueReached,
		Types: []processlog.InstanceType{{Name: "支付", Slots: 50, Running: 3, Stuck: 1}, {Name: "refund", Slots: 1}}}
	b := processlog.Instance{ID: processlog.InstanceID{0xff, 0, 0x27, 0x5c}, Name: strings.Repeat("名", 191)}
	assert.Empty(t, t.instances())
	require.NoError(t, t.ops().WriteInstance(t.ctx, b, 0, false))
	require.NoError(t, t.ops().WriteInstance(t.ctx, a, time.Hour, false))
	b.Name = processlog.FitActor(b.Name)
	assert.Equal(t, []processlog.Instance{a, b}, t.instances())

	before, err := t.ops().Instances(t.ctx)
	require.NoError(t, err)
	assert.Equal(t, time.Hour, before[0].SeenAt.Sub(before[0].StartedAt))
	assert.Equal(t, processlog.InstanceLive, before[0].State())
	a.Running, a.Queue, a.Types = false, processlog.InstanceQueueDown, a.Types[:1]
	require.NoError(t, t.ops().WriteInstance(t.ctx, a, 2*time.Hour, false))
	assert.Equal(t, []processlog.Instance{a, b}, t.instances())
	after, err := t.ops().Instances(t.ctx)
	require.NoError(t, err)
	assert.Equal(t, before[0].StartedAt, after[0].StartedAt, "a process starts once")
	assert.False(t, after[0].SeenAt.Before(before[0].SeenAt))
}

func (t *storeTest) endedInstanceStaysEnded() {
	a := processlog.Instance{ID: processlog.NewInstanceID(), Name: "api-1:17"}
	require.NoError(t, t.ops().WriteInstance(t.ctx, a, 0, false))
	require.NoError(t, t.ops().WriteInstance(t.ctx, a, 0, true))
	ended, err := t.ops().Instances(t.ctx)
	require.NoError(t, err)
	require.Len(t, ended, 1)
	assert.Equal(t, processlog.InstanceEnded, ended[0].State())
	// A write whose answer was lost may reach the store late, after the write that ended the process. The late write
	// may be an ordinary write, or the write of the end for a second time.
	for _, again := range []bool{false, true} {
		require.NoError(t, t.ops().WriteInstance(t.ctx, a, 0, again))
		after, err := t.ops().Instances(t.ctx)
		require.NoError(t, err)
		require.Len(t, after, 1)
		assert.Equal(t, ended[0].EndedAt, after[0].EndedAt)
	}
}

func (t *storeTest) instancesUnseenForLongAreForgotten() {
	a := processlog.Instance{ID: processlog.NewInstanceID(), Name: "a"}
	require.NoError(t, t.ops().WriteInstance(t.ctx, a, 100*time.Hour, false))
	require.NoError(t, t.ops().ForgetInstances(t.ctx, time.Hour))
	assert.Len(t, t.instances(), 1, "a process that started long ago and was seen lately")
	require.NoError(t, t.ops().ForgetInstances(t.ctx, -time.Hour))
	assert.Empty(t, t.instances())
}
