# frozen_string_literal: true

require_relative "../spec_helper"
require_relative "../../bin/lib/layers"

# The check of imports that bin/test makes, on a crate made up for it.
RSpec.describe Layers, once: "files of Rust" do
  # @param texts [Hash{String => String}] files below the crate's src
  # @return [Array<String>] the problems found
  def problems(texts)
    Dir.mktmpdir do |dir|
      texts.each do |name, text|
        FileUtils.mkdir_p(File.dirname("#{dir}/crate/src/#{name}"))
        File.write("#{dir}/crate/src/#{name}", text)
      end
      described_class.problems(dir, { "crate" => "bottom\nmiddle\ntop" })
    end
  end

  it "takes imports that run down the layers, and any of tests" do
    texts = { "middle.rs" => "use crate::bottom::Bottom;\n#[cfg(test)]\nmod tests {\n use crate::top::Top;\n}", "top/mod.rs" => "use crate::{bottom::{A, B}, middle};" }
    expect(problems(texts)).to eq([])
  end

  it "finds those that run up, and what is in no layer" do
    texts = { "middle.rs" => "fn a() { crate::top::a() }", "bottom/a.rs" => "use super::super::{middle};", "bottom/b.rs" => "use crate::{\n bottom::A, top::Top};", "other.rs" => "" }
    expect(problems(texts)).to contain_exactly(
      "crate: other is in no layer, see CRATES in bin/lib/layers.rb", "crate/src/middle.rs imports top, which is above it",
      "crate/src/bottom/a.rs imports middle, which is above it", "crate/src/bottom/b.rs imports top, which is above it"
    )
  end
end
