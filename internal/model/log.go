package model

import (
	"fmt"
	"strings"

	"github.com/jobshaper/jobshaper/buckets"
)

// log writes an entry of the departure log, as the scripts do:
//
//	g tenant id attempt slot wait rate common tolerance missed [keep]   a slot was granted
//	f tenant id attempt became late took                         a start ended
//	x tenant id attempt took blame                               its lease ended
//	p tenant until · r tenant                                    a pause began, ended
//	o · i                                                        the log was opened, Redis restarted
func (d *Downstream) log(kind string, words ...any) {
	if d.Policy.Log {
		line := fmt.Sprintln(append([]any{kind}, words...)...)
		d.Log = append(d.Log, strings.TrimSuffix(line, "\n"))
	}
}

func (d *Downstream) logGrant(t *Tenant, j *Job, slot, missed int64) {
	if !d.Policy.Log {
		return
	}
	common := "-"
	if d.shared() {
		common = fraction(d.Policy.Rate)
	}
	words := []any{t.Name, j.ID, j.Starts, slot, slot - d.Now, fraction(d.Limits(t).Rate), common,
		d.Policy.Tolerance.Microseconds(), missed}
	if keep := d.kept(t); keep > 0 {
		words = append(words, keep)
	}
	d.log("g", words...)
}

func fraction(r buckets.Rate) string { return fmt.Sprintf("%d/%d", r.Events, r.Period.Microseconds()) }
