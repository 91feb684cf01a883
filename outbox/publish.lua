-- Appends the events of some lanes to one stream, if the stream is still in the
-- expected epoch.
--
-- KEYS  epoch, fence hash, stream (one hash tag)
-- ARGV  expected epoch, lineage; then for each lane: lane id, resource, number of
--       events; and for each event: after, seq, kind, id, at, payload
--
-- Answers {'epoch', current epoch}, or for each lane its fence, how many entries
-- were added, and '' or 'gap' or the error that stopped it.
--
-- An event whose seq the fence has reached is a duplicate and is left out. One
-- whose predecessor the fence has not reached is refused: Redis lost something.
local current = redis.call('GET', KEYS[1])
if current ~= ARGV[1] then
  return {'epoch', current or ''}
end
local epoch, lineage = ARGV[1], ARGV[2]
local answer = {}
local i = 3
while i <= #ARGV do
  local lane, resource, count = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  i = i + 3
  local reached = redis.call('HGET', KEYS[2], lane) or '0'
  local fence, added, stopped = tonumber(reached), 0, ''
  for _ = 1, count do
    local after, seq = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
    if stopped == '' and seq > fence then
      if fence < after then
        stopped = 'gap'
      else
        local done = redis.pcall('XADD', KEYS[3], '*', 'lineage', lineage, 'epoch', epoch, 'resource', resource,
          'seq', ARGV[i + 1], 'kind', ARGV[i + 2], 'id', ARGV[i + 3], 'at', ARGV[i + 4], 'payload', ARGV[i + 5])
        if type(done) == 'table' and done.err then
          stopped = done.err
        else
          fence, reached, added = seq, ARGV[i + 1], added + 1
        end
      end
    end
    i = i + 6
  end
  if added > 0 then
    redis.call('HSET', KEYS[2], lane, reached)
  end
  answer[#answer + 1] = fence
  answer[#answer + 1] = added
  answer[#answer + 1] = stopped
end
return answer
