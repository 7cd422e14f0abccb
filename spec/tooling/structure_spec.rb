# frozen_string_literal: true

require_relative "../spec_helper"
require "open3"

# The limits that bin/lib/structure.rb sets.
RSpec.describe "The structure of lib/", once: "the files of lib" do
  { "its files" => [], "the files that a boot and a HUP enter" => ["trace"] }.each do |what, arguments|
    it "keeps its limits: #{what}" do
      output, status = Open3.capture2e(RbConfig.ruby, File.join(Server::ROOT, "bin/lib/structure.rb"), *arguments)
      expect(status.exitstatus).to eq(0), output
    end
  end
end
