//go:build !failpoints

package failpoint

// Reach does nothing in a build without the tag failpoints.
func Reach(Point) {}
