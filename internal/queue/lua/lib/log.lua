-- log: the departure log, which `shaper verify` reads. Off unless the downstream's policy says how
-- many entries to keep, about (its field log): Redis trims whole nodes of some hundred.
--
-- An entry is one field, e, of words, the first of which says what it tells. Twin: log.go. g tenant
-- id attempt slot wait rate common tau missed a slot was granted: slot µs, wait = slot - now µs,
-- the rates in effect as "events/period-µs" (the tenant's; the downstream's, or -), tau µs, and the
-- slot that was missed and is given up for this one, 0 = none f tenant id attempt became late took
-- a start ended, took µs after its slot; late is what the worker says, see finish. One that never
-- began is none, and the next one has its number
--   x tenant id attempt took          its lease ended, took µs after its slot
--   p tenant until                    it is paused, until µs; - = the downstream
--   r tenant                          that pause ended
--   i                                 Redis restarted or failed over
--   o                                 the log was turned on
--
-- A log that cannot be written stops no job. Call it only where a repeated call of the script does
-- not come.

-- include base

local function log(ds, ...)
  if ds.log then pcall(call, 'XADD', K_LOG, 'MAXLEN', '~', ds.log, '*', 'e', table.concat({ ... }, ' ')) end
end
