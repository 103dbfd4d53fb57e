module engines/vitess

go 1.26.4

require vitess.io/vitess v0.24.2
