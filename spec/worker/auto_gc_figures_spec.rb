# frozen_string_literal: true

require_relative "../../lib/fastrack/gc/auto_gc"

RSpec.describe "OobGC=auto and the names of the collector's figures", once: "the figures are made up" do
  let(:stat) { { malloc_increase_bytes: 1_000, malloc_increase_bytes_limit: 9_000, heap_empty_pages: 0 } }
  let(:pool) { { slot_size: 40, heap_eden_slots: 1_000, total_allocated_objects: 700, total_freed_objects: 100 } }

  def figures(stat, pool)
    allow(GC).to receive(:stat) { |hash = {}| hash.merge!(stat) }
    allow(GC).to receive(:stat_heap) { |which, pools = {}| which ? pool : pools.merge!(0 => pool) }
    allow(GC).to receive(:latest_gc_info).and_return(need_major_by: nil, state: :none)
  end

  { "Ruby 3.3" => [{}, { heap_allocatable_pages: 0 }, 400], "Ruby 3.4 and 4.0" => [{ heap_allocatable_slots: 50 }, {}, 450],
    "Ruby 4.1" => [{ heap_allocatable_bytes: 4_000 }, { heap_allocatable_slots: 100 }, 500] }.each do |ruby, (more_stat, more_pool, slots)|
    it "finds the room of a heap with those of #{ruby}" do
      figures(stat.merge(more_stat), pool.merge(more_pool))
      expect(Fastrack::AutoGC).to be_possible
      expect(Fastrack::AutoGC.new {}.send(:rooms)).to eq([slots, 8_000])
    end
  end

  it "is not possible with unknown ones" do
    figures(stat, pool)
    expect(Fastrack::AutoGC).not_to be_possible
  end
end
