# frozen_string_literal: true

require "open3"
require "rbconfig"
require "tmpdir"

# The spell checker of the lane `checks`.
RSpec.describe "bin/lib/spelling.rb", once: "a tool" do
  script = File.expand_path("../../bin/lib/spelling.rb", __dir__)

  def check(script, name, text)
    Dir.mktmpdir do |dir|
      File.write(file = File.join(dir, name), text)
      output, status = Open3.capture2e(RbConfig.ruby, "-w", script, file)
      skip "aspell is not installed" if output.include?("skipped")
      [output.scan(/^#{Regexp.escape(file)}:(\d+): (.*)$/).map { |line, word| [line.to_i, word] }, status.exitstatus]
    end
  end

  it "names the line of each unknown word of a page, and leaves code, links and the project's words out" do
    page = <<~TEXT
      # Fastrack's headnig

      A `wrod` and [a link](https://example.org/wrod), MaxWrods, `several
      wrods`.

      ```ruby
      wrod
      ```

          wrod --wrod

      Rhebok's lines, *recieved* by epoll.
    TEXT
    expect(check(script, "page.md", page)).to eq([[[1, "headnig"], [12, "recieved"]], 1])
  end

  it "reads the comments of code, and nothing else of it" do
    expect(check(script, "a.rb", "wrod = 'wrod' # The wrold\n# @param wrod [Wrod] fine\n")).to eq([[[1, "wrold"]], 1])
    expect(check(script, "a.rs", "let wrod = \"http://wrod\";\n/// The wrold of `wrod`\n")).to eq([[[2, "wrold"]], 1])
    expect(check(script, "a.sh", "#!/bin/wrod\nwrod 'wrod'\n# The wrold\n")).to eq([[[3, "wrold"]], 1])
  end

  it "passes what is right" do
    expect(check(script, "page.md", "Workers respawn.\n")).to eq([[], 0])
  end
end
