package compensator

func OpenWheel() Queue { return newWheel() }
