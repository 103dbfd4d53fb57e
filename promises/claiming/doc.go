// Package claiming tests when an entry is claimed and by which process (G1, G9, G10, G16, G17, G18).
package claiming
