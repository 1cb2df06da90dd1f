// The WebGPU execution provider for .NET programs: its library path, its name and its devices.
//
// The provider is a Python package. A .NET program needs only that package, this file, and Microsoft.ML.OnnxRuntime (1.24.4 or
// later). Written for C# 6 and .NET Standard 2.0. See docs/hosts.md.

using System;
using System.Collections.Generic;
using System.Diagnostics;
using System.IO;
using System.Linq;
using Microsoft.ML.OnnxRuntime;

namespace OnnxRuntimeEpWgpu
{
    /// <summary>Finds the provider library and its devices.</summary>
    public static class WebGpuEp
    {
        /// <summary>The environment variable with the Python executable, for the library and for this class.</summary>
        public const string PythonVariable = "ONNXRUNTIME_EP_WGPU_PYTHON";

        private const string Registration = "webgpu_ep_registration";
        private static readonly object Lock = new object();
        private static bool registered;

        /// <summary>The provider's name, as in <c>OrtEpDevice.EpName</c>.</summary>
        public static string GetEpName()
        {
            return GetEpNames()[0];
        }

        /// <summary>All names of the provider in the library; the second is an alias of the first.</summary>
        public static string[] GetEpNames()
        {
            return new[] { "WebGpuExecutionProvider", "WgpuExecutionProvider" };
        }

        /// <summary>The absolute path of the provider library, for <c>OrtEnv.RegisterExecutionProviderLibrary</c>.</summary>
        /// <param name="python">The Python executable with the installed package, such as <c>.venv/bin/python</c>. The
        /// default is ONNXRUNTIME_EP_WGPU_PYTHON, else python3 (python on Windows) from PATH.</param>
        /// <exception cref="FileNotFoundException">There is no such Python, or it does not have the package.</exception>
        public static string GetLibraryPath(string python = null)
        {
            var executable = python ?? Environment.GetEnvironmentVariable(PythonVariable);
            if (string.IsNullOrEmpty(executable)) executable = Path.DirectorySeparatorChar == '\\' ? "python" : "python3";
            var start = new ProcessStartInfo
            {
                FileName = executable,
                Arguments = "-c \"import onnxruntime_ep_wgpu; print(onnxruntime_ep_wgpu.get_library_path())\"",
                RedirectStandardOutput = true,
                RedirectStandardError = true,
                UseShellExecute = false,
                CreateNoWindow = true,
            };
            string output, error;
            try
            {
                using (var process = Process.Start(start))
                {
                    var errors = process.StandardError.ReadToEndAsync();
                    output = process.StandardOutput.ReadToEnd().Trim();
                    error = errors.Result.Trim();
                    process.WaitForExit();
                }
            }
            catch (System.ComponentModel.Win32Exception problem)
            {
                throw new FileNotFoundException(
                    "'" + executable + "' cannot be run; name the Python that onnxruntime-ep-wgpu is installed for in "
                    + PythonVariable, problem);
            }
            if (File.Exists(output)) return output;
            var lines = error.Split('\n');
            throw new FileNotFoundException(
                "'" + executable + "' has no onnxruntime-ep-wgpu (" + lines[lines.Length - 1].Trim() + "); install it with '"
                + executable + " -m pip install onnxruntime-ep-wgpu', or name another Python in " + PythonVariable);
        }

        /// <summary>Returns the provider's devices, the preferred one first. Registers the library in
        /// <paramref name="env"/> on the first call.</summary>
        public static IReadOnlyList<OrtEpDevice> GetDevices(OrtEnv env, string python = null)
        {
            lock (Lock)
            {
                if (!registered) env.RegisterExecutionProviderLibrary(Registration, GetLibraryPath(python));
                registered = true;
            }
            return env.GetEpDevices().Where(device => device.EpName == GetEpName()).ToList();
        }

        /// <summary>Adds the provider to <paramref name="options"/>, on its first device.</summary>
        /// <param name="epOptions">Provider options, <c>{"validationMode", "full"}</c>; see docs/options.md.</param>
        /// <exception cref="InvalidOperationException">The provider has no device; ONNX Runtime's log has the reason.</exception>
        public static void AppendWebGpu(
            this SessionOptions options, OrtEnv env, IReadOnlyDictionary<string, string> epOptions = null, string python = null)
        {
            var devices = GetDevices(env, python);
            if (devices.Count == 0)
                throw new InvalidOperationException(GetEpName() + " has no device: is a GPU driver installed?");
            options.AppendExecutionProvider(env, new[] { devices[0] }, epOptions ?? new Dictionary<string, string>());
        }
    }
}
