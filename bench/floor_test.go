package bench

import "testing"

// A floor that runs scripts of its own would be another machine's.
func TestFloorsRunTheScriptsOfTheLibrary(t *testing.T) {
	for _, name := range []string{"claim", "settle"} {
		if _, err := script(name); err != nil {
			t.Error(err)
		}
	}
}
