//go:build !failpoints

package failpoint

func Reach(Point) {}
