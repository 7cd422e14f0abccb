# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../bin/lib/layers"

# The check of imports that bin/test makes, on a crate made up for it.
RSpec.describe Layers, once: "files of Rust" do
  # @param texts [Hash{String => String}] files below the crate's src, beside those that are empty
  # @return [Array<String>] the problems found
  def problems(**texts)
    Dir.mktmpdir do |dir|
      FileUtils.mkdir_p("#{dir}/crate/src")
      { lib: "mod bottom; mod middle; mod top;\npub use top::Top;", bottom: "pub struct Bottom;", middle: "", top: "", **texts }
        .each { |name, text| File.write("#{dir}/crate/src/#{name}.rs", text) }
      Layers.new(dir, { "crate" => [[], "bottom\nmiddle\ntop"] }).problems
    end
  end

  it "takes imports that run down the layers" do
    expect(problems(middle: "use crate::bottom::Bottom;", top: "use crate::{bottom::Bottom, middle};")).to eq([])
  end

  it "finds those that go round, run up or leave the crate" do
    circle = problems(bottom: "use crate::top::Top;", top: "\nuse super::bottom::Bottom;").first
    expect(circle).to start_with("a circle of 2 files: crate/src/bottom.rs crate/src/top.rs\n")
    expect(problems(middle: "fn a() { crate::top::a() }", top: "use rb_sys::VALUE;"))
      .to contain_exactly("crate/src/middle.rs:1 imports crate/src/top.rs, which is above it", "crate/src/top.rs:1 must not import rb_sys")
  end
end
