# frozen_string_literal: true

require "open3"
require_relative "../spec_helper"

# The spell checker of bin/test.
RSpec.describe "bin/lib/spelling.rb", once: "words" do
  it "names the line of each unknown word of a page and of comments, and leaves code, links and the project's words out" do
    texts = { "page.md" => "# Fastrack's headnig\n\nA `wrod`, [a link](https://example.org/wrod), MaxWrods.\n\n    wrod\n\nRhebok *recieved* it.\n",
              "a.rb" => "wrod = 'wrod' # The wrold\n", "a.rs" => "let wrod = \"http://wrod\";\n/// The wrold of `wrod`\n", "right.md" => "Workers respawn.\n" }
    Dir.mktmpdir do |dir|
      files = texts.map { |name, text| "#{dir}/#{name}".tap { |file| File.write(file, text) } }
      output, status = Open3.capture2e(RbConfig.ruby, "-w", "#{Server::ROOT}/bin/lib/spelling.rb", *files)
      skip "aspell is not installed" if output.include?("skipped")
      expect(output.scan(%r{^#{dir}/(.*)$}).flatten).to contain_exactly("page.md:1: headnig", "page.md:7: recieved", "a.rb:1: wrold", "a.rs:2: wrold")
      expect(status.exitstatus).to eq(1)
    end
  end
end
