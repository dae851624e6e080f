-- What happened, told once per script call: one stream entry and one counter update for a whole batch.
local event_rows = {}
local counters = {}

local function count(name, by) counters[name] = (counters[name] or 0) + (by or 1) end

-- How attempts end is counted by the level that the task was enqueued with, and by the reason if there are several.
local function count_end(kind, level, reason)
  count(reason and kind .. ':' .. level .. ':' .. reason or kind .. ':' .. level)
end

-- event rows: what happened, level, attempt (1 for the first), worker, detail, {id, ...}
-- What is alike and comes in a row is told in one row: most batches are a single one.
local function event(id, kind, level, attempt, worker, detail)
  local row = event_rows[#event_rows]
  worker, detail = worker or '', detail or ''
  if not row or row[1] ~= kind or row[2] ~= level or row[3] ~= attempt or row[4] ~= worker or row[5] ~= detail then
    row = {kind, level, attempt, worker, detail, {}}
    event_rows[#event_rows + 1] = row
  end
  local ids = row[6]
  ids[#ids + 1] = id
end

local THROUGHPUT_SLOT_US = 10000000
local THROUGHPUT_KEPT_S = '130'

-- How every script that moved tasks ends.
local function conclude()
  write_additions()
  for _, row in ipairs(event_rows) do count(row[1], #row[6]) end
  for name, by in pairs(counters) do redis.call('HINCRBY', stats_key, name, text(by)) end
  local good, bad = counters['completed'], (counters['failed'] or 0) + (counters['dead_letter'] or 0)
  if good or bad > 0 then
    local key = key_of('throughput', text(math.floor(now_us / THROUGHPUT_SLOT_US)))
    local is_new = false
    if good then is_new = redis.call('HINCRBY', key, 'completed', text(good)) == good end
    if bad > 0 then is_new = redis.call('HINCRBY', key, 'failed', text(bad)) == bad or is_new end
    if is_new then redis.call('EXPIRE', key, THROUGHPUT_KEPT_S) end
  end
  if #event_rows > 0 and config.events_max ~= '0' then
    redis.call('XADD', events_key, 'MAXLEN', '~', config.events_max, '*', 'rows', cmsgpack.pack(event_rows))
  end
end
