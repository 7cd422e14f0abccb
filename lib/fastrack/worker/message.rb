# frozen_string_literal: true

module Fastrack
  # The kinds of messages between the server's processes: see Message.
  module MessageKinds
    # Master: the handle of the forked process exists, so the process may begin.
    KNOWN = "known"
    # Worker: hooks have run, signal handlers are set, and the worker serves. New master: all of its workers serve.
    READY = "ready"
    # Worker: the request limit is reached; may the worker exit? The worker waits for the answer.
    LIMIT_REACHED = "limit reached"
    # Worker: all requests are served, and only hooks are left. A replacement need not wait for hooks.
    ENDING = "ending"
    # Worker: all requests are served, and it waits for streams and for sockets that the app has taken over. Their numbers follow.
    LINGERING = "lingering"
    # Answers to LINGERING: leave the sockets, and exit after the last stream; or end all. The seconds to spread the ends over follow.
    LEAVE = "leave"
    END_ALL = "end all"
    # Worker: it takes more memory than MaxMemoryPerChild, and serves until it is told to stop.
    OUTGROWN = "outgrown"
    # Worker: it takes more memory than MaxMemoryPerChild since its first request. The message comes once.
    TOO_LARGE = "too large"
    # Worker or mold: the app forbids reforks. The place of the call follows.
    FORBID = "forbid reforks"
    # Worker: it runs YJIT on a Ruby whose full GC writes to all of YJIT's code (MutableBranchList::for_each), so a refork saves nothing.
    COPIES_CODE = "copies code"
    # Worker: whether something in the app, such as a debugger, handles INT.
    INTERRUPT_TAKEN = "interrupt taken"
    INTERRUPT_LEFT = "interrupt left"
    # Answers to LIMIT_REACHED: exit, because a replacement takes over; or serve until a signal comes. A promoted worker gets neither.
    # A mold gets GO before the end of its channel, if the master lets go of it.
    GO = "go"
    STAY = "stay"
    # New master: all of its workers serve, and the old master is to quit.
    READY_AND_QUIT = "ready and quit"
    # Master: after its last request the worker is to become the mold instead of exiting.
    PROMOTE = "promote"
    # Worker: it is the mold now, and waits for orders. Generation 0: the app is loaded.
    MOLD = "mold"
    # Mold: a signal, whose name follows, is to stop the server: an app's child has ended, and the server without it is of no use.
    STOP = "stop"
    # Mold: a plugin restarts the server.
    RESTART = "restart"
    # Mold: its plugins have started.
    STARTED = "started"
    # Generation 0: its memory, which the master may not read: PSS and private bytes follow.
    MEMORY = "memory"
    # Mold: a process that only the mold can wait for has ended. Its pid and its status (wait(2)) follow.
    REAPED = "reaped"
    # Worker: a frame of its profile: its number and its name; a stack: how often it was seen, and its frames' numbers, the outermost first;
    # the end of the profile.
    PROFILE_FRAME = "profile frame"
    PROFILE_STACK = "profile stack"
    PROFILED = "profiled"
    # Old master: the new master took too long to boot.
    TIMED_OUT = "timed out"

    # Master to mold: fork a worker. The order's number, how many descriptors belong to it, the worker's number, its place in the scoreboard, and
    # identities of listeners.
    FORK = "fork"
    # Mold: the order's number, and the pid of its worker; 0: there is none.
    FORKED = "forked"
    # Master to generation 0: start the plugins. "later" follows if the server serves already.
    START = "start"
    # Master to generation 0: an event of the server's. Its name and numbers follow.
    EVENT = "event"
    # Master to generation 0: lends its ports to the next generation 0, by the socket that comes with it (LentPorts).
    LEND = "lend"
    # Master to generation 0: the server has stopped, or has other code.
    FINISH = "finish"

    # Proxy: the number of the certificates' reading that it uses.
    LOADED = "loaded"
    # Proxy: a sign of life; its counters; the number of the settings that it has taken; the number of those that it has not taken, and why.
    PONG = "pong"
    STATS = "stats"
    APPLIED = "applied"
    REFUSED = "refused"
    # Proxy: lines for the log.
    INFO = "info"
    WARN = "warn"
    ERROR = "error"
  end

  # A message of another process: its kind, and the values of its words.
  #
  # Processes of the app's may write anything, and the master may be root's. So KINDS has all that a sender may say: what is not there is no
  # message, and its sender is broken.
  Message = Struct.new(:kind, :words)

  class Message
    include MessageKinds

    # A type of words: its text, and its value.
    Type = Struct.new(:pattern, :value)

    # No number is longer than a process may count.
    COUNT = Type.new(/\d{1,15}/, :to_i)
    PID = Type.new(/\d{1,9}/, :to_i)
    # As wait(2) has it.
    STATUS = Type.new(/\d{1,5}/, :to_i)
    SECONDS = Type.new(/\d{1,9}(?:\.\d{1,18})?(?:e-\d{1,3})?/, :to_f)
    STOP_SIGNAL = Type.new(/TERM|INT/, :to_s)
    # A JSON object of numbers.
    COUNTER = /"\w{1,40}":(?:-?(?:0|[1-9]\d{0,19})|null)/
    COUNTERS = Type.new(/\{(?:#{COUNTER}(?:,#{COUNTER}){0,60})?\}/, :to_s)
    # Numbers of frames.
    FRAMES = Type.new(/\d{1,5}(?: \d{1,5}){0,255}/, :to_s)
    # The rest of the line, for people.
    TEXT = Type.new(/.*/, :to_s)

    worker = {
      READY => [], LIMIT_REACHED => [], ENDING => [], LINGERING => [COUNT, COUNT],
      OUTGROWN => [], TOO_LARGE => [], FORBID => [TEXT], COPIES_CODE => [],
      INTERRUPT_TAKEN => [], INTERRUPT_LEFT => [],
      PROFILE_FRAME => [COUNT, TEXT], PROFILE_STACK => [COUNT, FRAMES], PROFILED => []
    }
    mold = { MOLD => [], STOP => [STOP_SIGNAL], REAPED => [PID, STATUS], FORKED => [COUNT, PID] }

    # Kinds of messages with the types of their words, by the role of the sender. A promoted worker is a mold from one message to the next.
    KINDS = {
      worker: worker,
      promoted: { **worker, **mold },
      first: {
        **mold, FORBID => [TEXT], MEMORY => [COUNT, COUNT], STARTED => [], RESTART => []
      },
      new_master: { READY => [], READY_AND_QUIT => [] },
      old_master: { KNOWN => [], TIMED_OUT => [] },
      proxy: {
        READY => [], PONG => [], STATS => [COUNTERS], LINGERING => [COUNT, COUNT], APPLIED => [COUNT], REFUSED => [COUNT, TEXT], LOADED => [COUNT],
        INFO => [TEXT], WARN => [TEXT], ERROR => [TEXT]
      },
      master: {
        KNOWN => [], GO => [], STAY => [], PROMOTE => [], LEAVE => [],
        END_ALL => [SECONDS]
      }
    }.freeze

    PATTERNS = KINDS.transform_values do |kinds|
      kinds.to_h { |kind, types| [kind, /\A#{[kind, *types.map { |type| "(#{type.pattern})" }].join(" ")}\z/] }
    end
    private_constant :COUNTER, :PATTERNS

    # @param line [String] valid UTF-8
    # @param role [Symbol] a key of KINDS
    # @return [Message, nil] nil: the sender is broken
    def self.parse(line, role)
      PATTERNS.fetch(role).each do |kind, pattern|
        found = pattern.match(line) or next
        return new(kind, found.captures.zip(KINDS[role][kind]).map { |text, type| text.public_send(type.value) })
      end
      nil
    end
  end
end
