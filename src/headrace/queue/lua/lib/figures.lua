-- Reading a queue's figures.

-- {{level, depth, oldest_us or 0}, ...}, {{level, line, depth}, ...} where the depth is not 0
local function waiting_levels()
  local lines = redis.call('SMEMBERS', capsets_key)
  local levels, by_line = {}, {}
  for index, level in ipairs(config.level_names) do
    local depth, oldest_us = 0, nil
    for _, line in ipairs(lines) do
      local key = ready_key(level, line)
      local in_line = redis.call('ZCARD', key)
      depth = depth + in_line
      if in_line > 0 then by_line[#by_line + 1] = {level, line, in_line} end
      local head = tonumber(redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])
      if head and (not oldest_us or head < oldest_us) then oldest_us = head end
    end
    levels[index] = {level, depth, oldest_us or 0}
  end
  return levels, by_line
end

-- completed, failed
local function last_minute()
  local completed, failed = 0, 0
  local slot = math.floor(now_us / 10000000)
  for back = 0, 5 do
    local bucket = redis.call('HMGET', key_of('throughput', text(slot - back)), 'completed', 'failed')
    completed = completed + tonumber(bucket[1] or 0)
    failed = failed + tonumber(bucket[2] or 0)
  end
  return completed, failed
end
