# frozen_string_literal: true

module HttpApps
  # Switches to another protocol by rack.protocol (Rack 3.1), in the way that the path names.
  class Switching
    def call(env)
      offered = env["rack.protocol"]
      case env["PATH_INFO"]
      when "/offered" then [200, {}, [offered.inspect]]
      when "/other" then [200, { "rack.protocol" => "other" }, stream]
      else [200, { "rack.protocol" => offered.first, "x-own" => "yes" }, stream]
      end
    end

    private

    def stream
      lambda do |io|
        io.write(io.readpartial(100).upcase)
        io.close
      end
    end
  end
end
