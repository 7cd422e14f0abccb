# frozen_string_literal: true

require "support/http_helpers"
require "support/http_mutation"

RSpec.describe "requests that are nearly right" do
  # Other seeds give other requests; a run can be repeated.
  seed = Integer(ENV.fetch("FASTRACK_MUTATION_SEED", "20240229"))
  requests = 3000

  [false, true].each do |unix|
    context unix ? "over a unix socket, with decoded paths" : "over TCP" do
      before(:context) { serve(HttpApps.ru(:echo), unix: unix, options: { "PathInfo" => unix ? "decoded" : "encoded" }) }

      it "B-mutation #{requests} of them (seed #{seed}) are each answered or closed, and the worker lives" do
        mutation = HttpMutation.new(seed + (unix ? 1 : 0))
        answers = Array.new(requests) do
          bytes = mutation.next
          wire, = HttpPeer.exchange(server, bytes, half_close: true)
          expect(wire).to match(%r{\A(HTTP/1\.1 [1-5]\d\d [ -~]*\r\n.*)?\z}mn), "#{bytes.inspect} gave #{wire.inspect}"
          wire[9, 3]
        end
        expect(answers.tally.keys).to include("200", "400")
        expect_worker_alive
        expect(server.log).not_to match(/\[BUG\]|panicked|Error/)
      end
    end
  end
end
