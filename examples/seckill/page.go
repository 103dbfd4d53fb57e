package main

type page struct{}

func newPage(s *sale, a *api, address string, stopping chan struct{}) *page { return &page{} }
func (p *page) routes()                                                     {}
