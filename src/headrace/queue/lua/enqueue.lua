#!lua
-- enqueue: store new tasks, ready now or later.
--
-- ARGV[1]  {tasks = {{id, level, capset, delay_us, max_retries, timeout_us, idempotency_key, message}, ...}}
--          level '' means the queue's default; max_retries and timeout_us of -1 mean the level's own.
-- Answer   {'ok', now_us, {{index, existing id}, ...}}        the list names idempotent duplicates, 0-based
--          {'unknown_queue'}
--          {'unknown_level', index, level}                    nothing was written
--          {'too_large', index, bytes, limit}                 nothing was written
--          {'too_late', index, limit_us}                      nothing was written
--          {'too_many_capability_sets', index}                nothing was written
--
-- Sending the same call again changes nothing, so a lost answer can be asked for once more: tasks are known by
-- their ids for as long as they exist, and where finished ones do not stay, the call itself is remembered for
-- longer than anybody would resend it. There is no
-- allow-oom flag: with maxmemory reached Redis refuses the script as a whole, before the first write.
--@include base
--@include events
--@include ready
if not config then return answer('unknown_queue') end

local levels = {}
for _, level in ipairs(config.levels) do levels[level.name] = level end

local seen_capsets, capset_total = {}, redis.call('SCARD', capsets_key)
for index, task in ipairs(request.tasks) do
  local level, capset, message = task[2], task[3], task[8]
  if level ~= '' and not levels[level] then return answer('unknown_level', index - 1, level) end
  if #message > config.max_payload_bytes then
    return answer('too_large', index - 1, #message, config.max_payload_bytes)
  end
  if task[4] > config.max_delay_us then return answer('too_late', index - 1, config.max_delay_us) end
  if not seen_capsets[capset] then
    seen_capsets[capset] = true
    redis.call('LLEN', wake_key(capset))
    for name in pairs(levels) do redis.call('ZCARD', ready_key(name, capset)) end
    capset_total = capset_total + 1 - redis.call('SISMEMBER', capsets_key, capset)
    if capset_total > config.max_capability_sets then
      return answer('too_many_capability_sets', index - 1)
    end
  end
end
check_types()

local RESENT_WITHIN_MS = 60000
local resent = false
if config.result_retention_us < RESENT_WITHIN_MS * 1000 then
  resent = not redis.call('SET', sent_key(redis.sha1hex(ARGV[1])), '1', 'PX', RESENT_WITHIN_MS, 'NX')
end

local duplicates, per_level = {}, {}
for index, task in ipairs(request.tasks) do
  local id, level_name, capset, delay_us = task[1], task[2], task[3], task[4]
  local max_retries, timeout_us, idempotency, message = task[5], task[6], task[7], task[8]
  local key = task_key(id)
  local existing = idempotency ~= '' and redis.call('GET', idempotency_key(idempotency))
  if existing then
    -- Its own id means that this is the same enqueue again, even if the task has come and gone since.
    if existing ~= id then duplicates[#duplicates + 1] = {index - 1, existing} end
  elseif not resent and redis.call('EXISTS', key) == 0 then
    if level_name == '' then level_name = config.default_level end
    local level = levels[level_name]
    if max_retries < 0 then max_retries = level.max_retries end
    if timeout_us < 0 then timeout_us = level.timeout_us end
    local state = delay_us > 0 and 'scheduled' or 'queued'
    redis.call('HSET', key, 'msg', message, 'state', state, 'level', level_name, 'max_retries', text(max_retries),
      'timeout_us', text(timeout_us), 'created_us', text(now_us))
    if capset ~= '' then redis.call('HSET', key, 'caps', capset) end
    if idempotency ~= '' then
      redis.call('SET', idempotency_key(idempotency), id, 'PX', math.ceil(config.idempotency_window_us / 1000))
    end
    if delay_us > 0 then
      make_due(id, now_us + delay_us)
    else
      make_ready(id, level_name, capset, now_us)
    end
    per_level[level_name] = true
    event(id, 'enqueued', level_name, 1)
  end
end

for level in pairs(per_level) do redis.call('HSET', stats_key, 'last_enqueue:' .. level, now_us) end
wake_idle_workers()
conclude()
return answer('ok', now_us, duplicates)
