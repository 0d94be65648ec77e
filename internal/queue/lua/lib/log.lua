-- log: the departure log, which `shaper verify` reads. It is off unless the downstream's policy
-- says (in its field log) how many entries to keep. That number is approximate: Redis trims whole
-- nodes of some hundred.
--
-- An entry has one field, e: words, the first of which says what the entry tells. Twin:
-- departurelog.go of package shaper.
--
--   g tenant id attempt slot wait rate common tau missed [keep]
--                             a slot was granted: the slot in µs; wait = slot - now in µs; the
--                             rates in effect, the tenant's and the downstream's or -, as
--                             "events/period-µs"; tau in µs; the slot that was missed and is given
--                             up for this one, 0 = none; with shared spacing, how many µs late the
--                             slot may be while the tenant keeps its place
--   f tenant id attempt became late took
--                             a start ended, took µs after its slot; late is what the worker says,
--                             see finish. If it never began it is no start, and the next one has
--                             its number
--   x tenant id attempt took blame
--                             its lease ended, took µs after its slot; blame is "blamed" if that
--                             counts against max_crashes, else "suspect", see crashed in job.lua
--   p tenant until            the tenant, or if - the downstream, is paused until that µs
--   r tenant                  that pause ended
--   i                         Redis restarted or failed over
--   o                         the log was turned on
--
-- A log that cannot be written stops no job. Call log only where a repeated call of the script does
-- not come.

-- include base

local function log(ds, ...)
  if ds.log then pcall(call, 'XADD', K_LOG, 'MAXLEN', '~', ds.log, '*', 'e', table.concat({ ... }, ' ')) end
end
