// Package bare has names with and without comments, for the test that looks for names without one.
package bare

type Bare struct {
	Field     int
	Commented int // comment
	One, Two  int // comment
	hidden    int
	Inner     struct {
		Deep int
	} // comment
}

// Doer is an interface.
type Doer interface {
	Do()

	// Done has a comment.
	Done()
}

// The comment of a group.
const (
	Grouped = iota
	Named   // comment
)

// Alone has a comment.
const Alone = 1

func Function() {}

// Method has a comment.
func (Bare) Method() {}

func (*Bare) Change() {}

func (Bare) Error() string { return "" }

func (b bare) Exported() {}

type bare struct{ X int }

var _ = Bare{}.hidden
