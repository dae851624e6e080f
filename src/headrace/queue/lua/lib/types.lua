-- A script that fails half-way is not rolled back, so a key of the wrong type must be found before the
-- first write. Each of these reads raises WRONGTYPE while nothing has been changed. The sorted sets are looked
-- at by one command: Redis checks every key of an intersection, and one that is always empty ends it at once.
local function check_types()
  redis.call('ZINTERCARD', '7', delayed_key, leases_key, dead_key, finished_key, workers_key, dead_workers_key,
    prefix .. 'empty', 'LIMIT', '1')
  redis.call('HLEN', stats_key)
  redis.call('SCARD', capsets_key)
  redis.call('XLEN', events_key)
end
