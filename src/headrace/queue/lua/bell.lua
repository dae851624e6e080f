#!lua flags=allow-oom
-- bell: how many more tasks may come to wait before an operator wants to know.
--
-- ARGV[1]  {room, waiting, epoch}
--          room     that number, or -1: it does not want to know
--          waiting  how many tasks waited when the number was found; what has come since is taken off it
-- Answer   {'ok', hung}             hung: false when too many have come already, and nobody would ring
--          {'unknown_queue'}
--          {'deposed'}              see base.lua
local needed = {'level_names'}
--@include base
--@include figures
if not is_defined then return answer('unknown_queue') end
if request.room < 0 then
  redis.call('HDEL', config_key, 'room')
  return answer('ok', true)
end
local waiting = 0
for _, level in ipairs(waiting_levels()) do waiting = waiting + level[2] end
local room = request.room - math.max(0, waiting - request.waiting)
if room < 0 then
  redis.call('HDEL', config_key, 'room')
  return answer('ok', false)
end
redis.call('HSET', config_key, 'room', text(room))
return answer('ok', true)
