package model

// file files a tenant under the instant at which its head may leave, or under none when nothing
// can; it follows every change of a tenant. Tickets go out a lead before that instant; what must
// not go out early, after a delay or a pause, is filed a lead later.
func (d *Downstream) file(t *Tenant) {
	p := d.Limits(t)
	t.Timeline = t.Timeline.Settled(p.Rate, d.Now, d.terms(t))
	t.filed = true
	t.Turn = d.Turn(t)
	t.ByTime = d.byTime(t)
	t.Busy = t.Level() > 0 || t.inFlight() > 0

	at := Forever
	switch {
	case t.inFlight() >= p.MaxInFlight: // the next end files it again
	case t.waiting() > 0:
		at = t.Turn
	case t.Later.Len() > 0:
		at = max(t.Later.first().At+d.lead(), t.Turn)
	}
	if t.Until > d.Now {
		at = max(at, t.Until+d.lead())
	}
	if at >= Forever {
		d.Due.drop(t.Name)
		return
	}
	d.Due.put(t.Name, at)
}
