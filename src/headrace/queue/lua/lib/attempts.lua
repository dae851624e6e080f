-- How an attempt ends. Settle and reclaim both come here, so a crash and a reported failure follow one rule.
local MAX_HISTORY = 50

local function load_task(id)
  local v = redis.call('HMGET', task_key(id), 'state', 'token', 'worker', 'started_us', 'level', 'promoted', 'caps',
    'retries', 'max_retries', 'timeout_us', 'created_us', 'place_us', 'crashes', 'cancel', 'watchers')
  if not v[1] then return nil end
  local created_us = tonumber(v[11])
  return {
    id = id, state = v[1], token = tonumber(v[2] or 0), worker = v[3] or nil, started_us = tonumber(v[4] or 0),
    level = v[5], promoted = v[6] or nil, caps = v[7] or '', retries = tonumber(v[8] or 0),
    max_retries = tonumber(v[9]), timeout_us = tonumber(v[10]), created_us = created_us,
    place_us = tonumber(v[12] or created_us), crashes = tonumber(v[13] or 0), cancel = v[14] or nil,
    watchers = v[15] or nil,
  }
end

local function backoff_us(retries, random)
  local delay_us = math.min(config.backoff_base_us * 2 ^ retries, config.backoff_max_us)
  return math.floor(delay_us * (1 - config.backoff_jitter * random))
end

-- Several tasks may need jitter in one call: walk from the one random number that came in.
local jitter_steps = 0
local function next_random()
  jitter_steps = jitter_steps + 1
  return (request.random + jitter_steps * 0.6180339887498949) % 1
end

-- The worker's load is kept here and nowhere else, so that drain can trust it.
local released = {}   -- worker -> how many leases it gave up or lost in this call
local function release_slot(worker)
  if worker then released[worker] = (released[worker] or 0) + 1 end
end

local function update_released_workers()
  for worker, slots in pairs(released) do
    local key = worker_key(worker)
    if redis.call('EXISTS', key) == 1 and redis.call('HINCRBY', key, 'load', -slots) <= 0 then
      redis.call('HSET', key, 'idle_since_us', now_us)
    end
  end
end

local function notify_watchers(task)
  if not task.watchers then return end
  for inbox in string.gmatch(task.watchers, '%S+') do redis.call('PUBLISH', inbox, task.id) end
end

-- completed, failed or cancelled: kept for as long as results are kept, then purged.
local function finish(task, state, field, value)
  local key = task_key(task.id)
  if config.result_retention_us > 0 then
    if field then
      redis.call('HSET', key, 'state', state, 'finished_us', text(now_us), field, value)
    else
      redis.call('HSET', key, 'state', state, 'finished_us', text(now_us))
    end
    add_later(finished_key, now_us + config.result_retention_us, task.id)
  else
    redis.call('DEL', key)
  end
  notify_watchers(task)
  event(task.id, state, task.promoted or task.level, task.retries + 1, task.worker)
end

local function dead_letter(task, reason, problem)
  redis.call('HSET', task_key(task.id), 'state', 'dead_letter', 'reason', reason, 'error', problem, 'finished_us', now_us)
  redis.call('ZADD', dead_key, now_us, task.id)
  notify_watchers(task)
  event(task.id, 'dead_letter', task.level, task.retries + 1, task.worker, reason)
end

local function remember_attempt(task, reason, problem)
  local key = task_key(task.id)
  local packed = redis.call('HGET', key, 'history')
  local history = packed and cmsgpack.unpack(packed) or {}
  history[#history + 1] = {task.retries + 1, task.worker or '', task.started_us, now_us, reason, problem}
  if #history > MAX_HISTORY then table.remove(history, 1) end
  redis.call('HSET', key, 'history', cmsgpack.pack(history))
end

-- After a failed attempt: wait for the next one, or be buried. The task returns to its original level.
local function retry_or_bury(task, reason, problem, after_us)
  remember_attempt(task, reason, problem)
  if task.retries + 1 > task.max_retries then
    return dead_letter(task, 'max_retries_exceeded', problem)
  end
  local delay_us = after_us or backoff_us(task.retries, next_random())
  local key = task_key(task.id)
  local level = existing_level(task.level)
  redis.call('HDEL', key, 'worker', 'promoted', 'started_us')
  if delay_us > 0 then
    redis.call('HSET', key, 'state', 'retrying', 'retries', task.retries + 1, 'level', level, 'error', problem)
    make_due(task.id, now_us + delay_us)
  else
    redis.call('HSET', key, 'state', 'queued', 'retries', task.retries + 1, 'level', level, 'error', problem)
    make_ready(task.id, level, task.caps, task.place_us)
  end
  event(task.id, 'retrying', level, task.retries + 1, task.worker, reason)
end
