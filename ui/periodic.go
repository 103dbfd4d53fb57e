package ui

import (
	"net/http"

	"github.com/compensator-go/compensator/admin"
)

type periodicData struct{ Types []admin.PeriodicType }

func (s *server) showPeriodic(rq *request) {
	found, err := s.admin.Periodic(rq.ctx, rq.Actor)
	if err != nil {
		rq.showFailure(err)
		return
	}
	rq.setTime(found.At)
	data := periodicData{found.Types}
	if !rq.unchanged("periodic", data) {
		rq.showPage(http.StatusOK, "periodic", data)
	}
}
