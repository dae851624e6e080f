-- Shared by every script: key names, the clock, the configuration, the answer.
--
-- KEYS are the queue's fixed keys, in the order of headrace.queue.keys.FIXED; enqueue gets the first six. Keys of
-- single tasks, workers, levels and so on cannot be known before the script runs; they are built here from the same
-- prefix, so they carry the same hash tag and live in the same slot as the declared ones.
local config_key, workers_key, stats_key, capsets_key, events_key, delayed_key = unpack(KEYS)
local leases_key, dead_key, finished_key, dead_workers_key, latencies_key = unpack(KEYS, 7)
local prefix = string.sub(config_key, 1, -7)

local function key_of(kind, name) return prefix .. kind .. ':' .. name end
local function task_key(id) return prefix .. 'task:' .. id end
local function ready_key(level, line) return prefix .. 'ready:' .. level .. ':' .. line end

-- Redis' own clock, frozen for the whole script. No worker's clock is ever trusted.
local clock = redis.call('TIME')
local now_text = clock[1] .. string.rep('0', 6 - #clock[2]) .. clock[2]
local now_us = tonumber(now_text)

local request = cmsgpack.unpack(ARGV[1])

-- The configuration, setting by setting: unpacking all of it would take longer than most scripts do. Those that
-- a script names in `needed` come with the first look, any other when it is asked for.
local stored = redis.call('HMGET', config_key, 'generation', 'paused', unpack(needed))
local is_defined, paused = stored[1], stored[2] == '1'
local config = {}
for i, name in ipairs(needed) do config[name] = stored[i + 2] and cmsgpack.unpack(stored[i + 2]) end
setmetatable(config, {__index = function(known, name)
  local value = redis.call('HGET', config_key, name)
  known[name] = value and cmsgpack.unpack(value)
  return known[name]
end})

local function answer(...) return cmsgpack.pack({...}) end

-- An operator's calls carry the number of its leader's term. Once a later one has published the queue, an earlier one
-- has been deposed, perhaps without knowing it, and changes nothing any more.
if request.epoch and request.epoch < tonumber(redis.call('HGET', config_key, 'epoch') or 0) then
  return answer('deposed')
end

-- Redis prints a number argument with seventeen digits, which takes longer than most commands. The paths that
-- every task takes hand over text, and print each number once.
local printed = {[now_us] = now_text, [1] = '1'}
local function text(number)
  local known = printed[number]
  if not known then
    known = string.format('%d', number)
    printed[number] = known
  end
  return known
end

-- ZADD in chunks: Lua's unpack is limited to some thousands of values.
local function add_all(key, pairs_flat)
  for first = 1, #pairs_flat, 1000 do
    redis.call('ZADD', key, unpack(pairs_flat, first, math.min(first + 999, #pairs_flat)))
  end
end

-- Sorted-set entries of a whole batch, written with one command per key when the script concludes.
local additions = {}
local function add_later(key, score, id)
  local flat = additions[key]
  if not flat then
    flat = {}
    additions[key] = flat
  end
  flat[#flat + 1] = text(score)
  flat[#flat + 1] = id
end

local function write_additions()
  for key, flat in pairs(additions) do add_all(key, flat) end
  additions = {}
end

local function remove_all(key, members)
  for first = 1, #members, 1000 do
    redis.call('ZREM', key, unpack(members, first, math.min(first + 999, #members)))
  end
end

-- What never changes in a task's life, in one field: a hash of few fields is written faster and takes less
-- memory than one of many. The tasks of one enqueue have the same text, which is read once.
local function spec_text(level, max_retries, timeout_us, created_us, capset)
  return level .. ' ' .. max_retries .. ' ' .. timeout_us .. ' ' .. created_us .. ' ' .. capset
end

-- A task waits in the line of its capability set. One that would be taken for poison after another crash stands in a
-- line of its own beside it: it is a suspect, and a worker takes no more than one at a time. So whoever only stood
-- beside the poison gets a chance without it.
local SUSPECT = '!'
local function line_of(capset, crashes)
  return crashes > 0 and crashes >= config.max_crashes - 1 and capset .. SUSPECT or capset
end
local function is_suspects(line) return string.sub(line, -1) == SUSPECT end
