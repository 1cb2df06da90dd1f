// NOT ONNX Runtime: declarations of the few members of Microsoft.ML.OnnxRuntime that hosts/csharp uses, with its signatures,
// so that the file can be compiled and called where the package is not to be had. Records what it is asked for.

using System.Collections.Generic;

namespace Microsoft.ML.OnnxRuntime
{
    public class OrtEpDevice
    {
        public string EpName { get; set; }
    }

    public sealed class OrtEnv
    {
        public readonly List<string> Calls = new List<string>();
        public readonly List<OrtEpDevice> Devices = new List<OrtEpDevice>();

        public void RegisterExecutionProviderLibrary(string registrationName, string libraryPath)
        {
            Calls.Add(registrationName + " " + libraryPath);
        }

        public IReadOnlyList<OrtEpDevice> GetEpDevices()
        {
            return Devices;
        }
    }

    public class SessionOptions
    {
        public readonly List<string> Calls = new List<string>();

        public void AppendExecutionProvider(
            OrtEnv env, IReadOnlyList<OrtEpDevice> epDevices, IReadOnlyDictionary<string, string> epOptions)
        {
            var text = "";
            foreach (var device in epDevices) text += device.EpName + " ";
            foreach (var pair in epOptions) text += pair.Key + "=" + pair.Value + " ";
            Calls.Add(text.Trim());
        }
    }
}
