package history

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := Files(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	return files[0]
}

func read(t *testing.T, name string) []Record {
	t.Helper()
	var found []Record
	require.NoError(t, ReadFile(name, func(_ Line, r Record) error { found = append(found, r); return nil }))
	return found
}

func filled(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			filled(v.Field(i))
		}
	case reflect.String:
		v.SetString("a \"text\"\nof two lines")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64, reflect.Int8:
		v.SetInt(-3)
	case reflect.Uint64:
		v.SetUint(1<<63 + 1)
	case reflect.Uint32:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		filled(v.Index(0))
		filled(v.Index(1))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		filled(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("key"), value)
	default:
		panic("filled: " + v.Kind().String())
	}
}

func TestEveryKindIsReadBackAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "app1")
	require.NoError(t, err)
	var want []Record
	for kind, empty := range kinds {
		require.Equal(t, kind, empty().Kind(), "the kind must decode into its struct")
		full := empty()
		filled(reflect.ValueOf(full).Elem())
		want = append(want, empty(), full)
	}
	require.NoError(t, w.Write(want...))
	require.NoError(t, w.Close())

	got := read(t, onlyFile(t, dir))
	require.Equal(t, "app1", got[0].(*Process).App)
	require.Equal(t, want, got[1:])
}

func TestTornLastLineIsLeftOut(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "app1")
	require.NoError(t, err)
	require.NoError(t, w.Write(&Commit{At: 1, Tx: 1}, &Commit{At: 2, Tx: 2}))
	require.NoError(t, w.Close())
	name := onlyFile(t, dir)
	whole, err := os.ReadFile(name)
	require.NoError(t, err)

	for cut := 1; cut < len(`{"kind":"commit","at":2,"tx":2}`); cut++ {
		require.NoError(t, os.WriteFile(name, whole[:len(whole)-cut], 0o644))
		got := read(t, name)
		require.Len(t, got, 2, "cut by %d bytes", cut)
		require.Equal(t, &Commit{At: 1, Tx: 1}, got[1])
	}
}

func TestDamagedLineIsAnErrorThatNamesIt(t *testing.T) {
	for _, damage := range []string{
		"{\"kind\":\"comm\x00\n", "not json\n", "\n", `{"kind":"nobody knows"}` + "\n", `{"kind":"commit","at":"x"}` + "\n",
	} {
		name := t.TempDir() + "/x" + suffix
		require.NoError(t, os.WriteFile(name, []byte(`{"kind":"commit","at":1,"tx":1}`+"\n"+damage), 0o644))
		err := ReadFile(name, func(Line, Record) error { return nil })
		require.ErrorContains(t, err, ":2: ", "damage %q", damage)
	}
}

func TestErrorOfTheCallbackEndsTheReading(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "app1")
	require.NoError(t, err)
	require.NoError(t, w.Write(&Commit{Tx: 1}))
	require.NoError(t, w.Close())
	mine := errors.New("enough")
	calls := 0
	err = ReadFile(onlyFile(t, dir), func(Line, Record) error { calls++; return mine })
	require.ErrorIs(t, err, mine)
	require.Equal(t, 1, calls)
}

func TestLinesOfManyGoroutinesStayWhole(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "app1")
	require.NoError(t, err)
	long := strings.Repeat("x", 10_000)
	var writers sync.WaitGroup
	for g := range 8 {
		writers.Go(func() {
			for i := range 100 {
				if err := w.Write(&Insert{Tx: uint64(g), DelayMS: int64(i), Key: long}, &Commit{Tx: uint64(g), At: int64(i)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	require.NoError(t, w.Close())

	next := make(map[uint64]int64)
	got := read(t, onlyFile(t, dir))[1:]
	require.Len(t, got, 1600)
	for i := 0; i < len(got); i += 2 {
		insert, commit := got[i].(*Insert), got[i+1].(*Commit)
		require.Equal(t, insert.Tx, commit.Tx, "the lines of one Write must stay together")
		require.Equal(t, next[insert.Tx], insert.DelayMS, "the lines of one goroutine must keep their order")
		require.Equal(t, long, insert.Key)
		next[insert.Tx]++
	}
}

func TestLineLongerThanTheReadersBufferIsRead(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(dir, "app1")
	require.NoError(t, err)
	long := strings.Repeat("x", 3<<20)
	require.NoError(t, w.Write(&Insert{Key: long}, &Commit{Tx: 9}))
	require.NoError(t, w.Close())
	got := read(t, onlyFile(t, dir))
	require.Len(t, got, 3)
	require.Equal(t, long, got[1].(*Insert).Key)
	require.Equal(t, &Commit{Tx: 9}, got[2])
}

func TestHashTellsContentsApart(t *testing.T) {
	require.Equal(t, uint64(0xcbf29ce484222325), Hash(nil), "FNV-1a's offset basis")
	require.Equal(t, uint64(0xaf63dc4c8601ec8c), Hash([]byte("a")), "FNV-1a of \"a\"")
	require.NotEqual(t, Hash([]byte("a")), Hash([]byte("b")))
}
