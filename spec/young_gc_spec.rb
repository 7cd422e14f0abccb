# frozen_string_literal: true

require_relative "spec_helper"
require_relative "../lib/fastrack/young_gc"

RSpec.describe "Collections of young objects" do
  # The pid and the numbers of collections, young and full, of the worker that answers.
  let(:counting) { "run ->(_env) { [200, {}, [GC.stat.values_at(:minor_gc_count, :major_gc_count).join(' ')]] }" }

  def counts(server, requests)
    Array.new(requests) { server.get.body.split.map(&:to_i) }
  end

  it "come now and then where Ruby itself would make none for thousands of requests, and are not full ones" do
    server = Server.start(ru: counting, options: { MaxWorkers: 1, MaxRequestPerChild: 0 })
    counts(server, 200)
    (young, full), *, last = counts(server, 801)
    # Where Ruby says that the next one would be a full one whatever is asked for, it is left to Ruby (3.4).
    expect(last).to match([be_between(young + 1, young + 9), be_between(full, full + 1)])
  end

  it "are not made where the app has switched the collector off" do
    server = Server.start(ru: counting, options: { MaxWorkers: 1, MaxRequestPerChild: 0 }, config: "after_fork { GC.disable }")
    expect(counts(server, 250).uniq.size).to eq(1)
  end

  describe "as such" do
    let(:collector) do
      Class.new do
        attr_accessor :count, :off, :slots, :due
        attr_reader :collections

        def initialize
          @count = 0
          @off = false
          @slots = 20_000
          @collections = []
        end

        def start(**how)
          @collections << how
          @count += 1
        end

        def stat(_key)
          @slots
        end

        def latest_gc_info(_key)
          @due
        end

        def disable
          @off.tap { @off = true }
        end

        def enable
          @off = false
        end
      end.new
    end

    it "leave it to Ruby where that has collected by itself" do
      young = Fastrack::YoungGC.new(collector)
      10.times do
        collector.count += 1
        young.call
      end
      expect(collector.collections).to eq([])
      young.call
      expect(collector.collections).to eq([{ full_mark: false, immediate_sweep: false }])
    end

    it "leave it to Ruby where that would make a full one" do
      stub_const("Fastrack::YoungGC::FORETOLD", true)
      young = Fastrack::YoungGC.new(collector)
      collector.due = :nofree
      3.times { young.call }
      expect(collector.collections).to eq([])
      collector.due = nil
      young.call
      expect(collector.collections.size).to eq(1)
    end

    it "come sooner in a new worker, then every hundred responses, and less often where there are many objects" do
      young = Fastrack::YoungGC.new(collector)
      expect(Array.new(4) { young.call }).to eq([50, 100, 100, 100])
      collector.slots = 1_000_000
      expect(Array.new(6) { young.call }.last).to eq(3_333)
      expect(collector.collections.size).to eq(10)
      expect(collector.off).to be(false)
    end
  end
end
