# frozen_string_literal: true

require_relative "../../lib/fastrack/process/cpus"

RSpec.describe "The number of workers", once: "files of the kernel" do
  # A machine's files, by path.
  def cpus(affinity, membership, files = {})
    Dir.mktmpdir("fastrack-cpus") do |dir|
      files.merge("membership" => membership).each { |name, text| Folder.write(dir, name, text) }
      Fastrack::CPUs.new(affinity: affinity, membership: "#{dir}/membership", root: dir).count
    end
  end

  v2 = "0::/app.slice/web\n"
  v1 = "5:memory:/docker/1f\n4:cpu,cpuacct:/docker/1f\n0::/docker/1f\n"

  {
    "the affinity without a quota" => [8, [8, v2, { "cpu.max" => "max 100000\n" }]],
    "without cgroups" => [3, [3, "", {}]],
    "the quota of a cgroup, version 2" => [2, [8, v2, { "app.slice/web/cpu.max" => "250000 100000\n" }]],
    "the smallest quota on the way up" => [1, [8, v2, { "app.slice/web/cpu.max" => "400000 100000", "app.slice/cpu.max" => "150000 100000" }]],
    "1 for half a CPU" => [1, [8, v2, { "app.slice/web/cpu.max" => "50000 100000" }]],
    "the affinity where that is less than the quota" => [2, [2, v2, { "app.slice/web/cpu.max" => "400000 100000" }]],
    "the quota of a cgroup, version 1" => [3, [8, v1, { "cpu,cpuacct/docker/1f/cpu.cfs_quota_us" => "300000\n",
                                                        "cpu,cpuacct/docker/1f/cpu.cfs_period_us" => "100000\n" }]],
    "a container's quota where its path is the host's" => [2, [8, v1, { "cpu/cpu.cfs_quota_us" => "200000", "cpu/cpu.cfs_period_us" => "100000" }]],
    "the affinity where version 1 has no quota" => [8, [8, v1, { "cpu/cpu.cfs_quota_us" => "-1", "cpu/cpu.cfs_period_us" => "100000" }]]
  }.each do |name, (count, arguments)|
    it("auto is #{name}") { expect(cpus(*arguments)).to eq(count) }
  end

  # What this machine allows, asked without the code in question.
  one_cpu = ["taskset", "-c", `taskset -pc #{Process.pid} 2>/dev/null`[/: (\d+)/, 1].to_s]

  { "WEB_CONCURRENCY=auto" => { env: { "WEB_CONCURRENCY" => "auto" } }, "MaxWorkers=auto" => { options: { MaxWorkers: "auto" } },
    "max_workers :auto" => { config: "max_workers :auto" } }.each do |name, given|
    it "#{name} starts a worker for each CPU that the server may use, and says so in one line", if: one_cpu.last != "" do
      server = Server.start(ru: Rackups::PID, fastrack: true, wrapper: one_cpu, **given)
      expect(server.await_workers(1)).to eq([server.get.body.to_i])
      expect(server.log.scan(/^fastrack: workers auto: .*/)).to match([/\Afastrack: workers auto: 1 \(affinity: 1 CPUs, cgroup quota: [\w.]+\)\z/])
    end
  end
end
