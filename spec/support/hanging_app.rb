# frozen_string_literal: true

# An app that hangs in each way that there is. The numbers of the lines are part of the examples' expectations.
module HangingApp
  SLEEP_LINE = 4
  LOOP_LINE = 5
  NATIVE_LINE = 6

  # sigwait(3) for no signal at all: native code that never returns and keeps Ruby's lock.
  RU = <<~'RUBY'
    require "fiddle"
    SIGWAIT = Fiddle::Function.new(Fiddle.dlopen(nil)["sigwait"], [Fiddle::TYPE_VOIDP] * 2, Fiddle::TYPE_INT, need_gvl: true)
    HERE = File.dirname(File.expand_path(__FILE__))
    SLEEPING = -> { sleep(60) }
    LOOPING = -> { loop { 1 + 1 } }
    NATIVE = -> { SIGWAIT.call("\0" * 128, "\0" * 8) }

    def wait_for(name)
      sleep 0.01 until File.exist?(File.join(HERE, name))
    end

    run lambda { |env|
      text = ->(body) { [200, { "content-type" => "text/plain" }, body] }
      env["fastrack.timeout"].call(Float(env["QUERY_STRING"])) unless env["QUERY_STRING"].empty?
      case env["PATH_INFO"]
      when "/sleep" then SLEEPING.call
      when "/loop" then LOOPING.call
      when "/native" then NATIVE.call
      when %r{\A/exit} then exit!(0)
      when "/stop" then Process.kill(:STOP, Process.pid)
      when "/wait"
        File.write(File.join(HERE, "waiting"), Process.pid.to_s)
        wait_for("go")
      when "/half" then return text.call(Enumerator.new { |parts| parts << "half"; SLEEPING.call })
      when "/whole"
        body = ["whole"]
        body.define_singleton_method(:close) { SLEEPING.call }
        return text.call(body)
      when "/large" then return text.call(Enumerator.new { |parts| 640.times { parts << "x" * 65_536 } })
      end
      text.call([Process.pid.to_s])
    }
  RUBY
end
