package features

import "github.com/compensator-go/compensator/internal/features/readback"

func init() {
	features = append(features, func(s *Set) { s.reportMissing = readback.Attach(s.Engine).ReportMissing })
}
