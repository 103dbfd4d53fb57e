// Package claiming holds when an entry is taken up, and by whom: never early (G9), each by one process (G16), found
// also where nobody enqueued it (G1) and where the queue invents (G10); what is locked, slow, unknown or stuck holds
// up nothing else (G17, G18), and rest costs next to nothing.
package claiming
