package compensator_test

import "os"

// childEnv names the program a re-executed test binary runs instead of its tests.
const childEnv = "COMPENSATOR_TEST_CHILD"

func runChild() { os.Exit(2) }
