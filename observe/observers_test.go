package observe

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// watching returns an Observer whose callbacks append to told. Each callback appends the parameter who and its own
// name.
func watching(who string, told *[]string) Observer {
	var o Observer
	v := reflect.ValueOf(&o).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.MakeFunc(v.Field(i).Type(), func([]reflect.Value) []reflect.Value {
			*told = append(*told, who+" "+name)
			return nil
		}))
	}
	return o
}

func callWithZeros(f reflect.Value) {
	var args []reflect.Value
	for i := range f.Type().NumIn() {
		args = append(args, reflect.Zero(f.Type().In(i)))
	}
	f.Call(args)
}

// Failure: F128
func TestObserversAreAllToldOfEverything(t *testing.T) {
	var told []string
	joined := reflect.ValueOf(Observers(watching("a", &told), Observer{}, watching("b", &told)))
	for i := range joined.NumField() {
		name := joined.Type().Field(i).Name
		require.Falsef(t, joined.Field(i).IsNil(), "%s is not joined", name)
		told = nil
		callWithZeros(joined.Field(i))
		assert.Equal(t, []string{"a " + name, "b " + name}, told)
	}
}

// Failure: F128
func TestObserverThatPanicsKeepsOthersFromNothing(t *testing.T) {
	told := 0
	broken := Observer{Settled: func(SettledEvent) { panic("metrics are broken") }}
	sound := Observer{Settled: func(SettledEvent) { told++ }}
	joined := Observers(sound, broken, sound, broken, sound)
	assert.PanicsWithValue(t, "metrics are broken", func() { joined.Settled(SettledEvent{}) })
	assert.Equal(t, 3, told)
}

func TestObserversOfNothingCostNothing(t *testing.T) {
	joined := reflect.ValueOf(Observers(Observer{}, Observer{}))
	for i := range joined.NumField() {
		assert.Truef(t, joined.Field(i).IsNil(), "%s", joined.Type().Field(i).Name)
	}
	observers := Observers(Observer{Settled: func(SettledEvent) {}}, Observer{Settled: func(SettledEvent) {}})
	assert.Zero(t, testing.AllocsPerRun(100, func() { observers.Settled(SettledEvent{}) }))
}
