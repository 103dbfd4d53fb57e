package bench

import (
	"fmt"
	"testing"
)

type leaseReport struct {
	Contests []row        `json:"contests"`
	Bytes    []leaseBytes `json:"bytes"`
	Calm     []leaseCalm  `json:"calm"`
	Claims   []leaseClaim `json:"claims"`
}

// TestLease compares claims that write one lease row with the library's claims. -only selects parts: drain, fused,
// varchar, sustained, log, bytes, calm, size, crowd, snapshot.
func TestLease(t *testing.T) {
	n := func(full int) int { return max(1, int(float64(full)**size)) }
	wanted := partsIn(t, "only", *only, "drain", "fused", "varchar", "sustained", "log", "bytes", "calm", "size", "crowd", "snapshot")
	var found leaseReport
	add := shown(t, func() {
		found.print()
		if err := save("../build/lease.json", found); err != nil {
			t.Error(err)
		}
	})
	// With the default I/O capacity, writing back the dirty pages before each run would take most of the time.
	io := []string{"--innodb-io-capacity=5000", "--innodb-io-capacity-max=10000"}
	plain := newArena(t, io...)
	plain.exec(leaseTable)
	hold := func(a *arena, all ...contest) {
		for _, c := range all {
			r := c.runPairs(a, *pairs)
			add(func() { found.Contests = append(found.Contests, r) })
		}
	}
	drain := func(loops int, form, other leaseForm) contest {
		return plain.leaseDrain(n(200_000), loops, payload, form, other)
	}
	if wanted("drain") {
		hold(plain, drain(2, formRow, formToday), drain(4, formRow, formToday), drain(4, formRewrite, formToday))
	}
	if wanted("fused") {
		hold(plain, drain(4, formFused, formToday), drain(4, formFusedRow, formToday))
	}
	if wanted("varchar") {
		hold(plain, drain(2, formToday, formVarchar), drain(4, formToday, formVarchar))
	}
	if wanted("sustained") {
		hold(plain, plain.leaseSustained(n(50_000), formRow))
	}
	if wanted("calm") {
		calm := plain.calmLeases(n(20), *pairs)
		add(func() { found.Calm = calm })
	}
	claims := func(measured []leaseClaim) { add(func() { found.Claims = append(found.Claims, measured...) }) }
	if wanted("size") {
		claims(plain.claimSizes(*pairs))
	}
	if wanted("crowd") {
		claims(plain.claimsInACrowd(*pairs))
	}
	if wanted("snapshot") {
		claims(plain.claimsBesideASnapshot(n(20_000)))
	}
	if wanted("log") || wanted("bytes") {
		logged := newArena(t, append(io, withBinaryLog...)...)
		logged.exec(leaseTable)
		if wanted("log") {
			for _, forms := range [][2]leaseForm{{formRow, formToday}, {formToday, formVarchar}} {
				small, large := logged.leaseDrain(n(200_000), 4, payload, forms[0], forms[1]), logged.leaseDrain(n(50_000), 4, 4096, forms[0], forms[1])
				small.work, large.work = small.work+", with a binary log", large.work+", with a binary log"
				hold(logged, small, large)
			}
		}
		if wanted("bytes") {
			for _, bytes := range []int{payload, 4096} {
				for _, form := range []leaseForm{formToday, formVarchar, formRow, formRewrite} {
					measured := logged.bytesOf(5000, bytes, form)
					add(func() { found.Bytes = append(found.Bytes, measured) })
				}
			}
		}
	}
}

func (r leaseReport) print() {
	if len(r.Contests) > 0 {
		fmt.Print("\n", table(r.Contests), "\n", costs(r.Contests))
	}
	if len(r.Bytes) > 0 {
		fmt.Print("\n| claim and settle, bytes an entry | content | redo | binary log |\n| --- | ---: | ---: | ---: |\n")
		for _, b := range r.Bytes {
			fmt.Printf("| %s | %d | %.0f | %.0f |\n", b.Form, b.Content, b.Redo, b.Log)
		}
	}
	if len(r.Calm) > 0 {
		fmt.Print("\n| business transaction at 500/s, beside 1,000 entries/s | p50 ms | p99 ms | p99 ÷ idle |\n| --- | ---: | ---: | ---: |\n")
		for _, c := range r.Calm {
			fmt.Printf("| %s | %.2f (%.2f–%.2f) | %.2f (%.2f–%.2f) | %.2f |\n", c.Form, c.P50.Median, c.P50.Min, c.P50.Max, c.P99.Median, c.P99.Min, c.P99.Max, c.P99.Median/r.Calm[0].P99.Median)
		}
	}
	if len(r.Claims) > 0 {
		fmt.Print("\n| a claim and its settle | form | entries | ms |\n| --- | --- | ---: | ---: |\n")
		for _, c := range r.Claims {
			fmt.Printf("| %s | %s | %d | %.2f (%.2f–%.2f) |\n", c.Work, c.Form, c.Entries, c.Took.Median, c.Took.Min, c.Took.Max)
		}
	}
}
