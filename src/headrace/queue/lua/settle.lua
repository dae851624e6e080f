#!lua flags=allow-oom
-- settle: what became of leased tasks. Each row is judged by its fencing token, on its own.
--
-- ARGV[1]  {random, rows = {{id, token, outcome, body, after_s}, ...}, ran = {level, runs, run_us, the next three, ...}}
--          ran  how many handlers have ended, and how long they took in all, as their worker measured it: tasks that
--               were claimed ahead of their time have waited for a part of their lease
--          outcome 'completed'    body = result as JSON
--                  'failed'       body = error as JSON; for good, no retry
--                  'retry'        body = error as JSON; without after_s, after the queue's backoff
--                  'snoozed'      after_s; no attempt is spent
--                  'handed_back'  returns to its place at once; no attempt is spent
--                  'cancelled'    the handler was stopped because somebody asked
-- Answer   {'ok', {{index, status}, ...}}   the rows (0-based) that were not simply settled, which nearly all are
--          status 'duplicate'  this very settle had already arrived (its answer was lost)
--                 'lost'       the token is stale: the lease was taken back; nothing was changed
--                 'gone'       there is no such task (any more)
--          {'unknown_queue'}
local needed = {'result_retention_us', 'events_max'}
--@include base
--@include types
--@include spec
--@include events
--@include ready
--@include task
--@include attempts
if not is_defined then return answer('unknown_queue') end
check_types()
redis.call('LLEN', latencies_key)
local ran = request.ran or {}
for at = 1, #ran, 3 do redis.call('HLEN', key_of('service', ran[at])) end

local LAST_SAMPLE = '999'
local SAMPLES_PER_CALL = 20

-- The states in which a settle with this outcome leaves a task, for recognising one that arrives twice.
local LEADS_TO = {
  completed = {completed = true},
  failed = {failed = true, cancelled = true},
  retry = {retrying = true, queued = true, dead_letter = true, cancelled = true},
  snoozed = {scheduled = true, queued = true, cancelled = true},
  handed_back = {queued = true, cancelled = true},
  cancelled = {cancelled = true},
}

local samples = {}
local apply = {}

function apply.completed(task, result)
  finish(task, 'completed', 'result', result)
  if #samples < SAMPLES_PER_CALL then
    samples[#samples + 1] = string.format('%.0f:%.0f', task.started_us - task.place_us, now_us - task.started_us)
  end
end

function apply.failed(task, problem)
  remember_attempt(task, 'failed', problem)
  finish(task, 'failed', 'error', problem)
end

function apply.retry(task, problem, after_us)
  retry_or_bury(task, 'error', problem, after_us)
end

function apply.snoozed(task, _, after_us)
  local key = task_key(task.id)
  redis.call('HDEL', key, 'worker', 'started_us', 'promoted')   -- it will wait anew, at its own level
  redis.call('HSET', key, 'state', 'scheduled')
  make_due(task.id, now_us + after_us)
  event(task.id, 'snoozed', task.level, task.retries + 1, task.worker)
end

function apply.handed_back(task)
  local key = task_key(task.id)
  redis.call('HDEL', key, 'worker', 'started_us', 'promoted')
  local level = existing_level(task.promoted or task.level)
  redis.call('HSET', key, 'state', 'queued')
  if level ~= task.level then redis.call('HSET', key, 'promoted', level) end
  make_ready(task.id, level, line_of(task.capset, task.crashes), task.place_us)
  event(task.id, 'handed_back', level, task.retries + 1, task.worker)
end

function apply.cancelled(task) finish(task, 'cancelled') end

local function to_us(seconds) return seconds and math.floor(seconds * 1000000 + 0.5) end

local exceptions, settled_ids = {}, {}
local function except(index, status) exceptions[#exceptions + 1] = {index - 1, status} end
for index, row in ipairs(request.rows) do
  local id, token, outcome, body, after_s = row[1], row[2], row[3], row[4], row[5]
  local task = load_task(id)
  if not task then
    except(index, 'gone')
  elseif task.token ~= token then
    except(index, 'lost')
  elseif task.state ~= 'executing' then
    except(index, LEADS_TO[outcome][task.state] and 'duplicate' or 'lost')
  else
    -- Work that is done is done; anything less gives way to a cancellation.
    if task.cancel and outcome ~= 'completed' then outcome = 'cancelled' end
    apply[outcome](task, body, to_us(after_s))
    release_slot(task)
    settled_ids[#settled_ids + 1] = id
  end
end

remove_all(leases_key, settled_ids)
if #samples > 0 then
  redis.call('LPUSH', latencies_key, unpack(samples))
  redis.call('LTRIM', latencies_key, '0', LAST_SAMPLE)
end
-- Halved when they are many: the mean follows what tasks have become, and a single one does not sway it. Many, because
-- the long tasks of a burst end last: a short memory would hold more of them than there are.
local RUNS_REMEMBERED = 10000
for at = 1, #ran, 3 do
  local key = key_of('service', ran[at])
  local runs = redis.call('HINCRBY', key, 'runs', text(ran[at + 1]))
  local run_us = redis.call('HINCRBY', key, 'run_us', text(ran[at + 2]))
  if runs > RUNS_REMEMBERED then
    redis.call('HSET', key, 'runs', text(math.floor(runs / 2)), 'run_us', text(math.floor(run_us / 2)))
  end
end
update_released_workers()
wake_idle_workers()
delete_doomed()
conclude()
return answer('ok', exceptions)
