-- What happened, told once per script call: one stream entry and one counter update for a whole batch.
local event_rows = {}
local counters = {}

local function count(name, by) counters[name] = (counters[name] or 0) + (by or 1) end

-- event rows: id, what happened, level, attempt (1 for the first), worker, detail
local function event(id, kind, level, attempt, worker, detail)
  if config.events_max > 0 then
    event_rows[#event_rows + 1] = {id, kind, level or '', attempt or 0, worker or '', detail or ''}
  end
  count(kind)
end

local THROUGHPUT_SLOT_US = 10000000
local THROUGHPUT_KEPT_S = 130

-- How every script that moved tasks ends.
local function conclude()
  write_additions()
  for name, by in pairs(counters) do redis.call('HINCRBY', stats_key, name, by) end
  local good, bad = counters['completed'], (counters['failed'] or 0) + (counters['dead_letter'] or 0)
  if good or bad > 0 then
    local key = throughput_key(math.floor(now_us / THROUGHPUT_SLOT_US))
    if good then redis.call('HINCRBY', key, 'completed', good) end
    if bad > 0 then redis.call('HINCRBY', key, 'failed', bad) end
    redis.call('EXPIRE', key, THROUGHPUT_KEPT_S)
  end
  if #event_rows > 0 then
    redis.call('XADD', events_key, 'MAXLEN', '~', config.events_max, '*', 'rows', cmsgpack.pack(event_rows))
  end
end
